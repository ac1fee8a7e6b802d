"""The archive is checked, repaired, reported and erased like the history; quarantined bytes keep no secret."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Repair
from amplifier_context_core.stores.jsonl.archive import Archive
from amplifier_context_core.stores.jsonl.file_ops import FileOps
from amplifier_context_core.stores.jsonl.journal import RedoJournal
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import Files

SECRET = "TOPSECRET-42"


async def archive(root: Path) -> Files:
    """Write a session of seqs 1 to 3 whose archive holds 4 to 6, then 7 and 8: five entries, two edit records."""
    store = JsonlStore(root)
    await store.append("s", entries(1, 6))
    await store.replace("s", 3, entries(7, 8))
    await store.replace("s", 3, [])
    await store.close()
    return Files(root)


def lines(files: Files) -> list[bytes]:
    return files.archive.read_bytes().splitlines(keepends=True)


def on_disk(root: Path, text: str = SECRET) -> list[str]:
    """Return the names of the files that hold a text."""
    return [path.name for path in (root / "s").iterdir() if text.encode() in path.read_bytes()]


async def test_a_line_is_json_that_begins_with_the_checksum_of_the_rest(root: Path) -> None:
    for line in lines(await archive(root)):
        assert re.match(rb'\{"crc32":\d+,"(seq|edited)":', line)
        assert json.loads(line)


@pytest.mark.parametrize("seed", range(20))
async def test_a_flipped_bit_costs_one_line_and_is_reported_repaired_and_kept(root: Path, seed: int) -> None:
    files, chance = await archive(root), random.Random(seed)
    data = bytearray(files.archive.read_bytes())
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    files.archive.write_bytes(data)
    store, repairs = JsonlStore(root), list[Repair]()
    assert any("archive" in problem for problem in await store.verify("s"))
    assert files.archive.read_bytes() == data
    await store.open("s", repairs.append)
    held = [one.seq for one in await store.archived("s")]
    assert len(repairs) == 1
    assert "archive" in repairs[0].description
    assert repairs[0].quarantined_at == str(files.damaged)
    assert len(held) >= 3, "a line end that is hit costs two lines"
    assert_same(await store.archived("s"), [one for one in entries(4, 8) if one.seq in held])
    assert await store.verify("s") == []
    assert (await store.extent("s")).last_seq == 8, "a seq is never given again"
    await store.replace("s", 2, entries(9, 9))
    assert [one.seq for one in await store.archived("s")] == [*held, 3]
    await store.close()
    assert len(repairs) == 1
    again = JsonlStore(root)
    assert (await again.open("s", repairs.append)).last_seq == 9
    assert [one.seq for one in await again.archived("s")] == [*held, 3]
    assert len(repairs) == 1, "what was repaired is sound"
    await again.close()


async def test_any_flipped_bit_is_noticed_and_costs_only_its_line(root: Path) -> None:
    """Each byte in turn. A damaged line end costs the two lines that it separated."""
    files = await archive(root)
    data = files.archive.read_bytes()
    read = Archive("s", str(files.archive), FileOps(durable=False))
    held = [4, 5, 6, 0, 7, 8, 0]  # by line; 0 for an edit record
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        files.archive.write_bytes(flipped)
        contents = read.read()
        line = data[:place].count(b"\n")
        hit = {line, line + 1} if data[place : place + 1] == b"\n" and line + 1 < len(held) else {line}
        assert contents.damaged, f"byte {place}"
        assert [one.seq for one in contents.entries] == [
            seq for number, seq in enumerate(held) if seq and number not in hit
        ], f"byte {place}"
        assert contents.last_seq >= 7


@pytest.mark.parametrize("line", [3, 6])
async def test_a_damaged_record_costs_no_entry_and_no_seq(root: Path, line: int) -> None:
    files = await archive(root)
    files.archive.write_bytes(b"".join([*lines(files)[:line], b"\xff" * 30 + b"\n", *lines(files)[line + 1 :]]))
    store, repairs = JsonlStore(root), list[Repair]()
    assert (await store.open("s", repairs.append)).last_seq == 8
    assert len(repairs) == (line == 6), "the end of the archive is looked at when a session is opened"
    assert [one.seq for one in await store.archived("s")] == [4, 5, 6, 7, 8]
    assert len(repairs) == 1
    await store.close()


async def test_a_reader_without_the_lock_skips_damaged_lines_and_changes_nothing(root: Path) -> None:
    files = await archive(root)
    files.archive.write_bytes(files.archive.read_bytes().replace(b'"seq":5', b'"sep":5'))
    before = {path: path.read_bytes() for path in (root / "s").iterdir()}
    store = JsonlStore(root)
    assert [one.seq for one in await store.archived("s")] == [4, 6, 7, 8]
    await store.close()
    assert {path: path.read_bytes() for path in (root / "s").iterdir()} == before


async def test_an_archive_of_before_lines_had_checksums_is_read_and_goes_on(root: Path) -> None:
    files = await archive(root)
    files.archive.write_bytes(re.sub(rb'"crc32":\d+,', b"", files.archive.read_bytes()))
    store, repairs = JsonlStore(root), list[Repair]()
    assert (await store.open("s", repairs.append)).last_seq == 8
    assert await store.verify("s") == []
    assert_same(await store.archived("s"), entries(4, 8))
    await store.replace("s", 2, [])
    await store.rewrite("s", [entry(5, "rewritten")])
    assert [one.message["content"] for one in await store.archived("s")][1] == "rewritten"
    assert [one.seq for one in await store.archived("s")] == [4, 5, 6, 7, 8, 3]
    assert await store.verify("s") == []
    assert repairs == []
    await store.close()


# -- forgetting -------------------------------------------------------------------------------------------------------


async def secret_in_the_archive(root: Path) -> Files:
    manager = ContextManager(load_config({}), session_id="s", store=JsonlStore(root))
    await manager.add_message({"role": "user", "content": "hello"})
    await manager.add_message({"role": "user", "content": f"my key is {SECRET}"})
    await manager.set_messages([{"role": "user", "content": "hello"}])
    await manager.close()
    return Files(root)


@pytest.mark.parametrize("damage", [b'"sep"', b'"\xff\x00q'])
@pytest.mark.parametrize("known", [False, True])
async def test_a_damaged_line_of_the_archive_hides_no_secret_from_forget(
    root: Path, damage: bytes, known: bool
) -> None:
    """Neither in its original file nor in quarantine; also if the session was opened and repaired before."""
    files = await secret_in_the_archive(root)
    files.archive.write_bytes(files.archive.read_bytes().replace(b'"seq"', damage, 1))
    store = JsonlStore(root)
    if known:
        await store.open("s")
        assert await store.archived("s") == []
        assert on_disk(root) == [files.damaged.name]
    manager = ContextManager(load_config({}), session_id="s", store=store)
    assert await manager.forget(["m2"]) == []
    assert on_disk(root) == []
    await manager.close()
    assert on_disk(root) == []


async def test_erasing_quarantined_bytes_is_reported(root: Path) -> None:
    files = await secret_in_the_archive(root)
    files.archive.write_bytes(files.archive.read_bytes().replace(b'"seq"', b'"sep"', 1))
    store, repairs = JsonlStore(root), list[Repair]()
    await store.open("s", repairs.append)
    await store.rewrite("s", [])
    assert ["quarantined" in repair.description for repair in repairs] == [True, True]
    assert "are erased" in repairs[1].description
    assert on_disk(root) == []
    await store.rewrite("s", [])
    assert len(repairs) == 2
    await store.close()


async def test_a_damaged_message_of_the_history_hides_no_secret_from_forget(root: Path) -> None:
    manager = ContextManager(load_config({}), session_id="s", store=JsonlStore(root))
    for text in ("hello", SECRET, "bye"):
        await manager.add_message({"role": "user", "content": text})
    await manager.close()
    files = Files(root)
    data = bytearray(files.main.read_bytes())
    data[len(files.lines[0])] = ord("[")
    files.main.write_bytes(data)
    store = JsonlStore(root)
    await store.open("s")
    assert [one.seq for one in await store.read("s")] == [1, 3]
    assert on_disk(root) == [files.damaged.name]
    manager = ContextManager(load_config({}), session_id="s", store=store)
    assert await manager.forget(["m2"]) == []
    assert on_disk(root) == []
    await manager.close()


async def test_archive_lines_of_a_failed_edit_are_erased_with_their_message(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries were written, and neither the edit nor the rollback could be."""
    store = JsonlStore(root)
    await store.append("s", [entry(1), entry(2, SECRET)])
    await store.close()
    copy = Files(root).main.read_bytes()

    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    await store.open("s")
    with monkeypatch.context() as patch:
        patch.setattr(RedoJournal, "write", refused)
        patch.setattr("amplifier_context_core.stores.jsonl.archive.Archive.discard_staged", refused)
        with pytest.raises(Exception, match="No space left"):
            await store.replace("s", 1, [])
    assert Files(root).main.read_bytes() == copy
    assert Files(root).archive.name in on_disk(root)
    assert await store.archived("s") == []
    await store.rewrite("s", [entry(2, "(erased)")])
    assert on_disk(root) == []
    await store.close()
