"""How little of a file is read, and what a reader finds while another store changes it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, open_store
from amplifier_context_core.stores.jsonl import file_ops, indexed_history, read_only_session
from amplifier_context_core.stores.jsonl import index as jsonl_index
from amplifier_context_core.stores.jsonl.paths import SessionFiles
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry, odd_messages
from tests.stores.jsonl.files import Files, fast_folder, write


class Reads:
    """Counts the bytes that are read, and the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = 0
        real = os.pread

        def pread(descriptor: int, length: int, offset: int) -> bytes:
            data = real(descriptor, length, offset)
            self.bytes += len(data)
            self.calls += 1
            return data

        monkeypatch.setattr(os, "pread", pread)


async def resume(root: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    store = JsonlStore(root)
    with monkeypatch.context() as patch:
        reads = Reads(patch)
        extent = await store.open("s")
        assert await store.load_checkpoint("s") == b"so far"
        assert len(await store.read("s", -50)) == 50
        assert [one.seq for one in await store.find("s", [17, extent.last_seq - 3])] == [17, extent.last_seq - 3]
    await store.close()
    return reads


async def test_resuming_reads_as_much_of_a_long_session_as_of_a_short_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Reads] = []
    for length in (200, 20_000):
        with fast_folder() as folder:
            store = JsonlStore(folder, durability="flush")
            await store.append("s", entries(1, length))
            await store.save_checkpoint("s", length - 40, b"so far")
            await store.close()
            read.append(await resume(folder, monkeypatch))
    short, long = read
    assert long.bytes < short.bytes + 60_000  # a few more steps of bisecting the index
    assert long.calls < short.calls + 80


async def test_a_steady_session_reads_nothing_from_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 100))
    reads = Reads(monkeypatch)
    for seq in range(101, 120):
        await store.append("s", entries(seq, seq))
        await store.extent("s")
    assert reads.calls < 10
    await store.close()


def test_bisecting_any_index_finds_what_counting_finds(root: Path) -> None:
    writer = jsonl_index.RecordWriter("s")
    for one in entries(1, 3_000):
        writer.add(one)
    path = root / "index"
    path.write_bytes(b"".join(writer.index_lines))
    with file_ops.open_for_reading(str(path)) as descriptor:
        assert descriptor is not None
        index = jsonl_index.Index(descriptor, path.stat().st_size)
        history = indexed_history.IndexedHistory("s", None, 0, index, 3_000, max_seq=3_000)
        for place in (0, 1, 777, 1_500, 2_998, 2_999):
            assert index.record(place).seq == place + 1
            assert [row.entry_index for row in history.records(place, place + 2)] == [
                *range(place, min(place + 2, 3_000))
            ]
        assert index.offset_of(3_000) == index.size
        assert [row.seq for row in history.find_records([5, 2_000, 4_000])] == [5, 2_000]


def test_odd_extras_survive_the_index(root: Path) -> None:
    for message in odd_messages().values():
        row = jsonl_index.IndexRecord(0, 1, 0, 10, 1, 1, 5, {"session_id": str(message)[:80], "big": 2**70}, 9)
        assert jsonl_index.decode_record(row.encode()) == row


async def test_seqs_out_of_order_are_found_by_bisection_or_by_a_scan(root: Path) -> None:
    given = [*entries(1, 400), entry(900), *entries(401, 800), entry(5_000), entry(901)]
    store = JsonlStore(root)
    await store.append("s", given)
    for wanted in ([1], [900, 1], [901], [5_000, 900, 401], [402, 899, 6_000]):
        assert_same(await store.find("s", wanted), [one for one in given if one.seq in wanted])
    await store.close()


async def test_a_session_is_read_whole_while_another_store_changes_it(root: Path) -> None:
    """A reader without the lock sees one history or the next, never a mixture."""
    writer, reader = JsonlStore(root, durability="flush"), JsonlStore(root)
    await writer.append("s", entries(1, 300))
    states = {(300, 300)}
    done = False

    async def change() -> None:
        nonlocal done
        seq = 300
        for _ in range(40):
            states.add((101, seq + 1))
            await writer.replace("s", 100, [entry(seq + 1)])
            new = [entry(one) for one in range(seq + 2, seq + 200)]
            seq += 199
            states.update({(299, seq)})
            await writer.append("s", new)
        done = True

    async def look() -> None:
        while not done:
            found = await reader.read("s")
            assert (len(found), found[-1].seq) in states
            await asyncio.sleep(0)

    await asyncio.gather(change(), look())
    await writer.close()
    await reader.close()


async def test_a_session_that_cannot_be_opened_can_be_deleted(root: Path) -> None:
    files = await write(root, 3)
    files.pending.mkdir()
    store = JsonlStore(root)
    with pytest.raises(StoreError):
        await store.open("s")
    files.pending.rmdir()
    files.index.unlink()
    files.index.symlink_to("/nowhere")
    with pytest.raises(StoreError, match="links are not followed"):
        await store.open("s")
    await store.delete("s")
    assert not (root / "s").exists()
    await store.close()


@pytest.mark.parametrize("left", [0, 1, 5, 39])
def test_an_index_truncated_during_a_read_is_damaged(tmp_path: Path, left: int) -> None:
    path = tmp_path / "index"
    writer = jsonl_index.RecordWriter("s")
    for one in entries(1, 40):
        writer.add(one)
    path.write_bytes(b"".join(writer.index_lines))
    with path.open("r+b") as file:
        index = jsonl_index.Index(file.fileno(), path.stat().st_size)
        assert index.offset_of(39) < index.size
        file.truncate(len(b"".join(writer.index_lines[:left])))
        for ask in (index.offset_of, index.record):
            with pytest.raises(jsonl_index.IndexDamaged):
                ask(39)
        with pytest.raises(jsonl_index.IndexDamaged):
            index.record_at(len(b"".join(writer.index_lines[:39])))


@pytest.mark.parametrize("keep", [0, 5])
async def test_a_reader_finds_what_is_left_while_a_writer_shortens_the_history(root: Path, keep: int) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 10))
    with read_only_session.open_read_only(SessionFiles("s", str(Files(root).main), own_folder=True), {}) as look:
        assert look.extent() == Extent(10, 10)
        await store.replace("s", keep, [])
        assert_same(look.read(min(keep, 3), None), entries(1 + min(keep, 3), keep))
        assert look.read(7, None) == []
        assert look.find([9]) == []
    await store.close()


async def test_an_open_session_whose_index_was_truncated_is_repaired(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 10))
    os.truncate(Files(root).index, 0)
    assert [one.message for one in await store.read("s")] == [one.message for one in entries(1, 10)]
    await store.append("s", entries(11, 11))
    assert (await store.extent("s")).length == 11
    await store.close()


async def test_a_folder_with_an_odd_name_does_not_hide_the_sessions(tmp_path: Path) -> None:
    store = open_store(f"jsonl:{tmp_path}")
    await store.append("mine", entries(1, 1))
    odd = tmp_path / "evil\x1b[31m"
    odd.mkdir()
    (odd / "context-messages.jsonl").write_text("{}\n")
    assert [info.session_id for info in await store.sessions()] == ["mine"]
    await store.close()


async def test_an_append_that_takes_long_is_read_whole(root: Path) -> None:
    """Between its writes, the main file ends inside the batch and the index before it."""
    writer, reader = JsonlStore(root, durability="flush"), JsonlStore(root)
    await writer.append("s", entries(1, 3))
    main, index = Files(root).main, Files(root).index
    before = [path.read_bytes() for path in (main, index)]
    await writer.append("s", entries(4, 9))
    after = [path.read_bytes() for path in (main, index)]
    main.write_bytes(after[0][: (len(before[0]) + len(after[0])) // 2])
    index.write_bytes(before[1])

    async def finish() -> None:
        await asyncio.sleep(0.1)
        main.write_bytes(after[0])
        index.write_bytes(after[1])

    found, _ = await asyncio.gather(reader.read("s"), finish())
    assert [one.seq for one in found] == [*range(1, 10)]
    await writer.close()
    await reader.close()


async def test_files_that_stay_inconsistent_are_waited_for_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait keeps all sessions of the store waiting."""
    writer, reader = JsonlStore(root, durability="flush"), JsonlStore(root)
    await writer.append("s", entries(1, 3))
    with Files(root).main.open("a") as main:
        main.write('{"role": "user", "content": "from another program"}\n')
    waits: list[float] = []
    monkeypatch.setattr(read_only_session, "time", SimpleNamespace(sleep=waits.append))
    assert len(await reader.read("s")) == 4
    assert len(waits) > 3
    waits.clear()
    assert len(await reader.read("s")) == 4
    assert [one.session_id for one in await reader.sessions()] == ["s"]
    assert waits == []
    await writer.close()
    await reader.close()
