"""Damage of real bytes: the session opens, loses at most the damaged messages, and reports the repair."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_context_core.stores import UNCOUNTED
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.damage import assert_looks, hit, line_start, seqs
from tests.stores.jsonl.files import NAME, Files, reopen, write

# -- the end of the file -----------------------------------------------------------------------------------------------


async def test_a_torn_last_line_is_cut_off_at_whatever_byte_it_ends(root: Path) -> None:
    files = await write(root, 3)
    whole, index, start = files.main.read_bytes(), files.index.read_bytes(), line_start(files, 2)
    for end in range(start, len(whole) - 1, 7):
        files.main.write_bytes(whole[:end])
        files.index.write_bytes(index)
        found = await reopen(root)
        assert found.seqs == [1, 2]
        assert found.extent.last_seq == 3  # it is not assigned again
        assert found.lost == 1
        for name in ("damaged", "archive"):
            getattr(files, name).unlink(missing_ok=True)


async def test_a_torn_line_is_quarantined(root: Path) -> None:
    files = await write(root, 3)
    files.main.write_bytes(files.main.read_bytes()[:-20])
    torn = files.lines[-1]
    found = await reopen(root)
    assert files.quarantined() == [torn]
    assert [repair.quarantined_at for repair in found.repairs] == [str(files.damaged)]
    assert "unfinished" in found.summary


async def test_a_line_that_only_lacks_its_end_is_kept(root: Path) -> None:
    files = await write(root, 3)
    files.main.write_bytes(files.main.read_bytes()[:-1])
    await assert_looks(root, [1, 2, 3])
    found = await reopen(root)
    assert found.seqs == [1, 2, 3]
    assert found.history == entries(1, 3)
    assert found.lost == 0
    assert len(files.messages) == 3


async def test_half_a_character_at_the_end_is_cut_off(root: Path) -> None:
    files = await write(root, 3)
    half = '{"role": "user", "content": "読'.encode()[:-1]
    files.main.write_bytes(files.main.read_bytes() + half)
    await assert_looks(root, [1, 2, 3])
    found = await reopen(root)
    assert found.seqs == [1, 2, 3]
    assert found.lost == 0  # it was never acknowledged
    assert files.quarantined() == [half]


async def test_a_torn_tail_is_never_merged_with_the_next_append(root: Path) -> None:
    files = await write(root, 2)
    files.main.write_bytes(files.main.read_bytes() + b'{"role": "user", "con')
    store = JsonlStore(root)
    await store.append("s", entries(3, 3))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3]
    await store.close()
    assert len(files.messages) == 3


@pytest.mark.parametrize("count", [1, 511, 4096, 70_000])
async def test_zeros_at_the_end_are_cut_off(root: Path, count: int) -> None:
    files = await write(root, 5)
    files.main.write_bytes(files.main.read_bytes() + bytes(count))
    await assert_looks(root, seqs(5))
    found = await reopen(root)
    assert found.seqs == seqs(5)
    assert found.lost == 0
    assert b"".join(files.quarantined()) == bytes(count)


async def test_zeros_in_place_of_the_last_lines_cost_those(root: Path) -> None:
    """A file system leaves this if a file's new size reached the disk and its last pages did not."""
    files = await write(root, 8)
    start = line_start(files, 5) + 10
    hit(files.main, start, bytes(len(files.main.read_bytes()) - start))
    await assert_looks(root, seqs(5))
    found = await reopen(root)
    assert found.seqs == seqs(5)
    assert found.extent.last_seq == 8
    assert found.lost == 3


async def test_a_line_after_zeros_is_saved(root: Path) -> None:
    files = await write(root, 3)
    line = json.dumps({"role": "user", "content": "after"}).encode()
    files.main.write_bytes(files.main.read_bytes() + bytes(100) + line + b"\n")
    found = await reopen(root)
    assert found.seqs == [1, 2, 3, 4]
    assert found.history[-1].message["content"] == "after"
    assert files.quarantined() == [bytes(100)]


@pytest.mark.parametrize("count", [1, 2, 5, 10])
async def test_a_tail_that_is_there_twice_is_there_once(root: Path, count: int) -> None:
    files = await write(root, 10)
    tail = b"".join(files.lines[-count:])
    files.main.write_bytes(files.main.read_bytes() + tail)
    await assert_looks(root, seqs(10))
    found = await reopen(root)
    assert found.seqs == seqs(10)
    assert found.history == entries(1, 10)
    assert found.lost == 0
    assert b"".join(files.quarantined()) == tail
    assert "repeat" in found.summary


async def test_a_tail_that_is_there_three_times_and_a_half_is_there_once(root: Path) -> None:
    files = await write(root, 10)
    tail = b"".join(files.lines[-3:])
    files.main.write_bytes(files.main.read_bytes() + tail + tail + tail[:-30])
    found = await reopen(root)
    assert found.seqs == seqs(10)
    assert b"".join(files.quarantined()) == tail + tail + tail[:-30]


async def test_two_equal_messages_that_were_appended_are_two(root: Path) -> None:
    store = JsonlStore(root)
    for seq in range(1, 7):
        await store.append("s", [entry(seq, {"role": "user", "content": "again"})])
    await store.close()
    assert (await reopen(root)).seqs == seqs(6)


async def test_equal_messages_are_two_though_the_index_did_not_reach_the_disk_in_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure takes what was not fsynced. Only the index line of a repeated message is."""
    from amplifier_context_core.stores.jsonl import file_ops

    synced: dict[int, bytes] = {}  # inode -> its bytes on disk
    files = Files(root)

    def sync(descriptor: int) -> None:
        for path in (files.main, files.index):
            if path.exists() and path.stat().st_ino == file_ops.os.fstat(descriptor).st_ino:
                synced[path.stat().st_ino] = path.read_bytes()

    store = JsonlStore(root)
    await store.append("s", entries(1, 5))
    await store.release("s")
    monkeypatch.setattr(file_ops, "_sync", sync)
    for seq in range(6, 10):
        await store.append("s", [entry(seq, entries(5, 5)[0].message)])
    power_cut = {path: synced.get(path.stat().st_ino, b"") for path in (files.main, files.index)}
    await store.close()
    for path, data in power_cut.items():
        path.write_bytes(data)
    assert (await reopen(root)).seqs == seqs(9)


async def test_lines_of_another_program_are_adopted(root: Path) -> None:
    files = await write(root, 4)
    new = [{"role": "user", "content": "theirs"}, {"role": "assistant", "content": "é", "timestamp": "2026-01-01"}]
    with files.main.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(message, ensure_ascii=False) + "\n" for message in new)
    await assert_looks(root, seqs(6))
    found = await reopen(root)
    assert found.seqs == seqs(6)
    assert [one.message for one in found.history[4:]] == new
    assert [one.tokens for one in found.history[4:]] == [UNCOUNTED, UNCOUNTED]
    assert [one.turn for one in found.history] == [1, 1, 1, 1, 2, 2]
    assert found.lost == 0


# -- the middle --------------------------------------------------------------------------------------------------------


async def test_zeros_in_the_middle_cost_the_lines_they_hit(root: Path) -> None:
    files = await write(root, 12)
    start, end = line_start(files, 4) + 30, line_start(files, 6) + 30
    hit(files.main, start, bytes(end - start))
    await assert_looks(root, seqs(12, 5, 6, 7))
    found = await reopen(root)
    assert found.seqs == seqs(12, 5, 6, 7)
    assert found.history == [one for one in entries(1, 12) if one.seq not in (5, 6, 7)]
    assert found.lost == 3
    assert len(files.messages) == 9


@pytest.mark.parametrize("seed", range(12))
async def test_any_byte_flipped_costs_at_most_its_line(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = await write(root, 8)
    place = chance.randrange(len(files.main.read_bytes()))
    number = files.main.read_bytes()[:place].count(b"\n")
    was = files.main.read_bytes()[place]
    hit(files.main, place, bytes([was ^ chance.choice((1, 2, 4, 16, 64, 128))]))
    found = await reopen(root)
    assert set(seqs(8, number + 1)) <= set(found.seqs)
    assert [one for one in found.history if one.seq != number + 1] == [
        one for one in entries(1, 8) if one.seq != number + 1
    ]
    assert found.repairs
    assert found.lost == 8 - len(found.seqs)
    assert found.lost == 0 or files.quarantined()


async def test_a_line_that_cannot_be_parsed_is_quarantined(root: Path) -> None:
    files = await write(root, 5)
    hit(files.main, line_start(files, 2), b"[")
    broken = files.lines[2]
    await assert_looks(root, seqs(5, 3))
    found = await reopen(root)
    assert found.seqs == seqs(5, 3)
    assert files.quarantined() == [broken]
    assert found.lost == 1


async def test_a_message_that_reads_differently_than_written_is_kept_and_reported(root: Path) -> None:
    files = await write(root, 5)
    place = line_start(files, 2) + files.lines[2].index(b"def f_3")
    hit(files.main, place, b"def g_3")
    found = await reopen(root)
    assert found.seqs == seqs(5)
    assert found.history[2].message["content"].startswith("def g_3")
    assert found.history[2].tokens == UNCOUNTED
    assert "m3" in found.summary
    assert found.lost == 0


@pytest.mark.parametrize("number", [0, 3, 7])
async def test_a_line_end_that_was_hit_costs_nothing(root: Path, number: int) -> None:
    files = await write(root, 8)
    hit(files.main, line_start(files, number + 1) - 1, b"J")
    found = await reopen(root)
    assert found.history == entries(1, 8)
    assert found.lost == 0
    assert len(files.messages) == 8


async def test_damage_is_found_by_a_later_read_and_the_read_is_shorter(root: Path) -> None:
    files = await write(root, 10)
    hit(files.main, line_start(files, 4) + 5, b"\xff\xff")
    reported: list[object] = []
    store = JsonlStore(root)
    assert (await store.open("s", reported.append)).length == 10
    assert [one.seq for one in await store.read("s", 0, 4)] == [1, 2, 3, 4]
    assert reported == []  # not read yet
    assert [one.seq for one in await store.read("s", 3, 7)] == [4, 6, 7]
    assert len(reported) == 1
    assert (await store.extent("s")).length == 9
    assert [one.seq for one in await store.read("s", -3)] == [8, 9, 10]
    await store.append("s", entries(11, 11))
    await store.close()
    assert (await reopen(root)).seqs == seqs(11, 5)


async def test_damage_found_by_its_seq_is_left_out(root: Path) -> None:
    files = await write(root, 10)
    hit(files.main, line_start(files, 4) + 5, b"\xff\xff")
    store = JsonlStore(root)
    await store.open("s")
    assert [one.seq for one in await store.find("s", [4, 5, 6])] == [4, 6]
    await store.close()


async def test_a_damaged_entry_that_is_replaced_is_reported_and_quarantined(root: Path) -> None:
    files = await write(root, 6)
    hit(files.main, line_start(files, 4) + 5, b"\xff\xff")
    broken = files.lines[4]
    store, reported = JsonlStore(root), list[object]()
    await store.open("s", reported.append)
    await store.replace("s", 3, entries(7, 7))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 7]
    assert [one.seq for one in await store.archived("s")] == [4, 6]
    await store.close()
    assert len(reported) == 1
    assert files.quarantined() == [broken]


@pytest.mark.parametrize("line", [b"17", b"[]", b'"text"', b"null", b"{}", b'{"content": "x"}', b'{"role": "nobody"}'])
async def test_a_line_that_is_no_message_is_quarantined(root: Path, line: bytes) -> None:
    files = await write(root, 4)
    lines = files.lines
    files.main.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:], line + b"\n"]))
    await assert_looks(root, seqs(4))
    found = await reopen(root)
    assert found.history == entries(1, 4)
    assert b"".join(files.quarantined()) == line + b"\n" + line + b"\n"
    assert len(files.messages) == 4


# -- harmless differences ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
async def test_line_ends_of_windows_a_byte_order_mark_and_blank_lines_are_read(root: Path, indexed: bool) -> None:
    files = await write(root, 4)
    data = b"\xef\xbb\xbf\r\n" + files.main.read_bytes().replace(b"\n", b"\r\n\r\n")
    files.main.write_bytes(data)
    if not indexed:
        files.index.unlink()
    await assert_looks(root, seqs(4))
    found = await reopen(root, go_on=False)
    assert [one.message for one in found.history] == [one.message for one in entries(1, 4)]
    assert found.lost == 0
    assert files.main.read_bytes() == data
    found = await reopen(root)
    assert found.repairs == []


async def test_a_file_edited_by_hand_keeps_the_seqs_of_what_was_not_touched(root: Path) -> None:
    files = await write(root, 6, checkpoint=2)
    lines = files.lines
    lines[3] = json.dumps(
        {"role": "assistant", "content": "edited, and longer than it was before by far " * 9}
    ).encode()
    files.main.write_bytes(b"".join([*lines[:3], lines[3], b"\n", lines[5], lines[4]]))
    found = await reopen(root)
    assert found.seqs == [1, 2, 3, 7, 6, 5]
    assert found.history[4].tokens == entries(6, 6)[0].tokens
    assert (found.lost, "(m4)" in found.summary) == (1, True)
    assert found.checkpoint == b"covers some"


async def test_a_file_rewritten_by_another_program_keeps_its_seqs(root: Path) -> None:
    """Spaces, escapes and offsets differ; the messages are the same."""
    files = await write(root, 6, checkpoint=4)
    files.main.write_text("".join(json.dumps(message, indent=None) + "\n" for message in files.messages))
    found = await reopen(root)
    assert found.history == entries(1, 6)
    assert found.lost == 0


async def test_a_history_another_program_shortened_drops_the_checkpoint(root: Path) -> None:
    files = await write(root, 6, checkpoint=4)
    files.main.write_bytes(b"".join(files.lines[1:]) + b'{"role": "user", "content": "more"}\n')
    found = await reopen(root)
    assert found.seqs == [2, 3, 4, 5, 6, 7]
    assert (found.lost, "(m1)" in found.summary) == (1, True)
    assert found.checkpoint is None


@pytest.mark.parametrize("removed", [{4}, {0}, {7}, {2, 3, 6}, {0, 1, 2, 3, 4, 5}])
async def test_lines_another_program_removed_are_reported_as_lost_messages(root: Path, removed: set[int]) -> None:
    files = await write(root, 8)
    files.main.write_bytes(b"".join(line for place, line in enumerate(files.lines) if place not in removed))
    store = JsonlStore(root)
    (reported,) = await store.verify("s")
    await store.close()
    found = await reopen(root)
    assert found.seqs == seqs(8, *(place + 1 for place in removed))
    (repair,) = found.repairs
    assert repair.lost == len(removed)
    assert f"(m{min(removed) + 1}" in repair.description
    assert repair.description.removesuffix("; continuing without") in reported


@pytest.mark.parametrize(
    "other",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\n\n"),
        lambda data: b"".join(data.splitlines(keepends=True)[::-1]),
    ],
    ids=["CRLF", "BOM", "blank lines", "order"],
)
async def test_verify_reports_an_index_that_does_not_fit_its_file(root: Path, other: Callable[[bytes], bytes]) -> None:
    files = await write(root, 4)
    files.main.write_bytes(other(files.main.read_bytes()))
    store = JsonlStore(root)
    assert await store.verify("s") == [f"the index of {NAME} does not match it"]
    await store.close()
    assert (await reopen(root)).summary == f"the index of {NAME} does not match it; rebuilt"


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_damage_of_any_kind_opens_and_what_was_not_hit_is_there(root: Path, seed: int) -> None:
    """Several kinds of damage at once, in every file."""
    chance = random.Random(seed)
    for number in range(6):
        session_id = f"session {number}"
        files = await write(root, 40, checkpoint=20, session_id=session_id)
        whole = files.main.read_bytes()
        struck: set[int] = set()
        for _ in range(chance.randrange(1, 4)):
            start, length = chance.randrange(len(whole)), chance.choice((1, 3, 40, 700))
            hit(files.main, start, chance.choice((bytes(length), chance.randbytes(length)))[: len(whole) - start])
            struck |= set(range(whole[:start].count(b"\n"), whole[: start + length].count(b"\n") + 1))
        if chance.random() < 0.5:
            hit(files.index, chance.randrange(len(files.index.read_bytes())), chance.randbytes(30))
        if chance.random() < 0.5:
            files.checkpoint.write_bytes(chance.randbytes(200))
        if chance.random() < 0.5:
            files.main.write_bytes(files.main.read_bytes() + chance.randbytes(50))
        found = await reopen(root, session_id)
        left = [one.message for one in found.history]
        expected = [one.message for one in entries(1, 40, session_id=session_id) if one.seq - 1 not in struck]
        assert [message for message in expected if message in left] == expected
        assert found.repairs
