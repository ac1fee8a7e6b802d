"""Damage of what can be made again: the index, the checkpoint, the archive."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from amplifier_context_core.stores import UNCOUNTED
from amplifier_context_core.stores.jsonl import scan
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries
from tests.stores.jsonl.damage import assert_looks, hit, line_start, seqs
from tests.stores.jsonl.files import Files, reopen, write

# -- index and checkpoint ----------------------------------------------------------------------------------------------


async def test_an_empty_file_is_an_empty_session(root: Path) -> None:
    files = await write(root, 4, checkpoint=2)
    files.main.write_bytes(b"")
    await assert_looks(root, [])
    found = await reopen(root)
    assert found.extent.length == 0
    assert found.extent.last_seq == 4
    assert found.lost == 4
    assert found.checkpoint is None


async def test_a_missing_main_file_is_an_empty_session(root: Path) -> None:
    files = await write(root, 4, checkpoint=2)
    files.main.unlink()
    found = await reopen(root)
    assert found.extent.last_seq == 4
    assert found.lost == 4


async def test_a_missing_index_is_rebuilt(root: Path) -> None:
    files = await write(root, 6, checkpoint=4)
    files.index.unlink()
    await assert_looks(root, seqs(6))
    found = await reopen(root)
    assert found.seqs == seqs(6)
    assert {one.tokens for one in found.history} == {UNCOUNTED}
    assert [one.turn for one in found.history] == [1, 1, 1, 1, 2, 2]
    assert found.checkpoint == b"covers some"
    assert found.lost == 0
    assert len(found.repairs) == 1


async def test_a_missing_index_does_not_bring_seqs_of_the_archive_back(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 6))
    await store.replace("s", 3, [])
    await store.close()
    Files(root).index.unlink()
    found = await reopen(root)
    assert found.seqs == [7, 8, 9]


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 300, b"garbage\n" * 40, b"\xff\xfe\n[1,2]\n", b"[]\n{}\n", b"[" * 5000]
)
async def test_a_garbage_index_is_rebuilt(root: Path, garbage: bytes) -> None:
    files = await write(root, 6)
    files.index.write_bytes(garbage)
    await assert_looks(root, seqs(6))
    found = await reopen(root)
    assert found.seqs == seqs(6)
    assert [one.message for one in found.history] == [one.message for one in entries(1, 6)]
    assert found.lost == 0
    assert found.repairs


async def test_the_index_of_another_session_is_rebuilt(root: Path) -> None:
    files = await write(root, 6)
    other = await write(root, 60, session_id="other")
    files.index.write_bytes(other.index.read_bytes())
    found = await reopen(root)
    assert [one.message for one in found.history] == [one.message for one in entries(1, 6)]


@pytest.mark.parametrize("cut", [1, 5, 40, 90])
async def test_a_torn_index_costs_nothing_but_counts(root: Path, cut: int) -> None:
    files = await write(root, 6)
    files.index.write_bytes(files.index.read_bytes()[:-cut])
    await assert_looks(root, seqs(6))
    found = await reopen(root)
    assert found.seqs == seqs(6)
    assert [one.message for one in found.history] == [one.message for one in entries(1, 6)]
    assert found.history[:2] == entries(1, 2)


async def test_garbage_in_the_middle_of_the_index_is_found_when_it_is_used(root: Path) -> None:
    files = await write(root, 900)
    hit(files.index, 12_000, b"#" * 300)
    store, reported = JsonlStore(root), list[object]()
    assert (await store.open("s", reported.append)).length == 900
    assert [one.seq for one in await store.read("s", -5)] == seqs(900)[-5:]
    assert [one.message for one in await store.read("s")] == [one.message for one in entries(1, 900)]
    assert reported
    await store.close()
    assert (await reopen(root)).extent.length == 900


async def test_an_index_that_leaves_lines_out_is_rebuilt(root: Path) -> None:
    files = await write(root, 30)
    lines = files.index.read_bytes().splitlines(keepends=True)
    files.index.write_bytes(b"".join(lines[:10] + lines[15:]))
    await reopen(root)
    store = JsonlStore(root)
    assert [one.message for one in await store.read("s", 8, 20)] == [one.message for one in entries(9, 20)]
    await store.close()


@pytest.mark.parametrize("data", [b"", b"\0" * 99, b"garbage", b'{"amplifier_context_checkpoint":[1,3],"crc32":1}\n'])
async def test_a_garbage_checkpoint_is_none_and_is_quarantined(root: Path, data: bytes) -> None:
    files = await write(root, 6, checkpoint=3)
    files.checkpoint.write_bytes(data)
    found = await reopen(root)
    assert found.checkpoint is None
    assert len(found.repairs) == 1
    assert files.quarantined() == [data]
    assert not files.checkpoint.exists()


@pytest.mark.parametrize("place", [3, 30, 45, 60, -3])
async def test_a_checkpoint_with_a_flipped_byte_is_none(root: Path, place: int) -> None:
    files = await write(root, 6, checkpoint=3)
    data = bytearray(files.checkpoint.read_bytes())
    data[place] ^= 1
    files.checkpoint.write_bytes(data)
    found = await reopen(root)
    assert found.checkpoint is None
    assert found.repairs


async def test_a_stale_checkpoint_is_none(root: Path) -> None:
    files = await write(root, 6, checkpoint=5)
    stale = files.checkpoint.read_bytes()
    store = JsonlStore(root)
    await store.replace("s", 3, entries(7, 12))
    await store.close()
    files.checkpoint.write_bytes(stale)
    reader = JsonlStore(root)
    assert await reader.load_checkpoint("s") is None
    assert files.checkpoint.exists()
    await reader.close()
    found = await reopen(root)
    assert found.checkpoint is None
    assert "checkpoint" in found.summary


async def test_damage_that_a_checkpoint_covers_drops_it(root: Path) -> None:
    files = await write(root, 8, checkpoint=5)
    hit(files.main, line_start(files, 2), b"[")
    assert (await reopen(root)).checkpoint is None


async def test_damage_after_what_a_checkpoint_covers_leaves_it(root: Path) -> None:
    files = await write(root, 8, checkpoint=5)
    hit(files.main, line_start(files, 6), b"[")
    found = await reopen(root)
    assert found.seqs == seqs(8, 7)
    assert found.checkpoint == b"covers some"


async def test_a_damaged_archive_hides_only_the_damaged_lines(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 6))
    await store.replace("s", 2, [])
    await store.close()
    files = Files(root)
    lines = files.archive.read_bytes().splitlines(keepends=True)
    files.archive.write_bytes(b"".join([lines[0], lines[1][:40] + b"\xff\0" + lines[1][42:], *lines[2:]]))
    assert [one.seq for one in await store.archived("s")] == [3, 5, 6]
    assert any("archive" in line for line in await store.verify("s"))
    await store.close()


async def test_a_long_file_without_an_index_is_read_with_words_in_the_log(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await write(root, 10)
    files.index.unlink()
    monkeypatch.setattr(scan, "_LOG_EVERY", 4)
    store = JsonlStore(root)
    with caplog.at_level(logging.INFO):
        assert (await store.extent("s")).length == 10
    await store.close()
    assert [record.getMessage()[:24] for record in caplog.records] == [
        "session s: 4 lines read ",
        "session s: 8 lines read ",
    ]


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_a_byte_flipped_in_the_index_never_gives_a_message_another_ones_seq(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = await write(root, 12)
    data = bytearray(files.index.read_bytes())
    data[chance.randrange(len(data))] ^= 1
    files.index.write_bytes(data)
    found = await reopen(root)
    assert len(found.seqs) == len(set(found.seqs)) == 12
    assert [one.message for one in found.history] == [one.message for one in entries(1, 12)]
    for one in found.history:
        assert one.seq > 12 or one.message == entries(one.seq, one.seq)[0].message
    assert found.lost == 0
