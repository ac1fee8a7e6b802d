"""Damaged SQLite databases: what is readable stays readable, and a session with damage is not changed."""

import asyncio
import logging
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_context_core import repair
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_core.stores.sqlite import repair as sqlite_repair
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.refusals import refused
from tests.stores.jsonl.files import running
from tests.stores.sqlite.damage import COMMAND, build, change, damage, emptied, filled, flip, overwritten_page, try_out

DAMAGE = [
    "UPDATE entries SET message = 'no JSON'",
    "UPDATE entries SET message = replace(message, 'module', 'nodule')",  # still JSON: only the checksum shows it
    "UPDATE entries SET tokens = tokens + 1",
    "UPDATE entries SET seq = 999",
    "UPDATE entries SET extra = '{'",
    "DELETE FROM entries",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_message_is_left_out_and_reported_and_its_session_is_not_changed(
    path: Path, store: SqliteStore, damage: str
) -> None:
    await filled(path, 9)
    change(path, f"{damage} WHERE session = 1 AND seq = 5")
    reported: list[Repair] = []
    assert await store.open("s", reported.append) == Extent(9, 9)
    for _ in range(2):
        assert_same(await store.read("s"), [*entries(1, 4), *entries(6, 9)])
    assert [(one.session_id, one.lost) for one in reported] == [("s", 1)]
    assert COMMAND in reported[0].description
    for call in (
        store.append("s", entries(10, 10)),
        store.replace("s", 2, []),
        store.save_checkpoint("s", 3, b"three"),
        store.rewrite("s", [entry(1, "(erased)")]),  # the damaged one may hold the same
    ):
        await refused(call, says=COMMAND)
    await store.rewrite("s", [entries(1, 1)[0]._replace(tokens=7)])
    await store.append("t", entries(21, 21, session_id="t"))  # other sessions go on
    assert await store.extent("s") == Extent(9, 9)


async def test_entries_that_changed_places_count_as_damaged(path: Path, store: SqliteStore) -> None:
    await filled(path, 9)
    for steps, seq in (("+ 1000", 3), ("- 1", 4), ("- 999", 3)):
        change(path, f"UPDATE entries SET id = id {steps} WHERE session = 1 AND seq = {seq}")
    assert_same(await store.read("s"), [*entries(1, 2), *entries(5, 9)])


async def test_a_damaged_page_is_an_error_of_the_sessions_that_it_holds_alone(path: Path, store: SqliteStore) -> None:
    await filled(path, 300)
    overwritten_page(path, "entries", 6)
    await store.open("t")
    for seq in (21, 22):
        await refused(store.read("s"), says=COMMAND)
        await store.append("t", [entry(seq, session_id="t")])
    assert [one.seq for one in await store.read("t")] == [*range(1, 16), 21, 22]
    assert_same(await store.read("s", 0, 20), entries(1, 20))


INDEX = "sqlite_autoindex_sessions_1"


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda path: change(path, "UPDATE sessions SET length = 0 WHERE id = 's'"), "s"),
        (lambda path: change(path, "UPDATE sessions SET length = 299 WHERE id = 's'"), "s"),
        (lambda path: emptied(path, INDEX), "s"),
        (lambda path: emptied(path, "archive_by_session"), "t"),
    ],
)
async def test_damage_makes_no_session_open_short_or_as_new_and_hides_no_message_from_an_erasure(
    path: Path, store: SqliteStore, damage: Callable[[Path], None], name: str
) -> None:
    await filled(path)
    damage(path)
    calls = {
        "s": (lambda: store.open("s"), lambda: store.append("s", [entry(301)])),
        "t": (lambda: store.rewrite("t", [entry(17, "(erased)", session_id="t")]), lambda: store.delete("t")),
    }
    for call in calls[name]:
        await refused(call(), says=COMMAND)
    assert await store.verify(name) != []


async def test_all_damage_is_found_by_verify_which_changes_nothing_and_an_archive_or_a_checkpoint_with_it_is_not_used(
    path: Path, store: SqliteStore
) -> None:
    await filled(path, 9)
    assert await store.verify("s") == []
    await store.close()
    change(
        path,
        "UPDATE entries SET crc = 0 WHERE session = 1 AND seq = 5",
        "DELETE FROM entries WHERE seq = 8 AND session = 1",
        "UPDATE checkpoints SET crc = 0 WHERE session = 1",
        "UPDATE archive SET crc = 0 WHERE seq = 17",
    )
    before, reported = path.read_bytes(), list[Repair]()
    assert await store.verify("s") == [
        "database: a checkpoint is damaged",
        "the message at index 4 is damaged or missing",
        "the message at index 7 is damaged or missing",
    ]
    assert (await store.verify("t"))[1:] == ["1 archived messages are damaged"]
    await store.close()
    assert path.read_bytes() == before
    await store.open("t", reported.append)
    assert [one.seq for one in await store.archived("t")] == [16, 18, 19, 20]
    await store.open("s", reported.append)
    assert await store.load_checkpoint("s") is None
    assert [one.lost for one in reported] == [1, 0]


async def exit_code(path: Path) -> int:
    """Repair a database, and return the exit code of the command."""
    return await asyncio.to_thread(repair.main, [str(path)])


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: flip(path, path.read_bytes().index(b"WHERE seq <> (id") + 12, 1),  # the text of an index
        lambda path: overwritten_page(path, "facts", 0),
        lambda path: emptied(path, INDEX),
        lambda path: emptied(path, "archive_by_session"),
        lambda path: change(path, "UPDATE sessions SET length = 3, last_seq = 7, archived = -1 WHERE id = 's'"),
    ],
)
async def test_a_repair_loses_no_message_that_can_be_read(
    path: Path, store: SqliteStore, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    await filled(path)
    damage(path)
    broken = path.read_bytes()
    assert await exit_code(path) == 0
    assert [file.read_bytes() for file in path.parent.glob("*.damaged-*")] == [broken]
    assert await store.verify("s") == await store.verify("t") == []
    assert await store.open("s") == Extent(300, 300)
    assert_same(await store.read("s"), entries(1, 300))
    assert await store.extent("t") == Extent(15, 20)
    assert_same(await store.archived("t"), entries(16, 20, session_id="t"))
    assert (await store.load_checkpoint("s"), await store.load_checkpoint("t")) == (b"five", b"fifteen")
    await store.append("s", [entry(301)])
    await store.close()
    assert "module" not in capsys.readouterr().out, "no message is quoted"
    assert await exit_code(path) == 0
    assert capsys.readouterr().out == "nothing to repair\n"


async def test_what_cannot_be_repaired_is_left_as_it_is(
    path: Path, store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    await filled(path, 9)
    for content in (bytes(4_096) + path.read_bytes()[4_096:], b"SQLite format 3\0" + bytes(5_000), b"my notes\n" * 900):
        path.write_bytes(content)
        await refused(store.append("s", entries(10, 10)), says=r"another application|no database")
        await store.close()
        assert await exit_code(path) == 1
        assert "restore a backup" in capsys.readouterr().err
        assert path.read_bytes() == content
        assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE sessions SET id = 'q'", "q"),
        ("UPDATE sessions SET id = x'ff'", "recovered-2"),
        ("DELETE FROM sessions", "recovered-2"),
    ],
)
async def test_a_session_whose_id_is_lost_comes_back_under_another(
    path: Path, store: SqliteStore, damage: str, found: str
) -> None:
    await filled(path, 9)
    change(path, f"{damage} WHERE id = 't'")
    assert await exit_code(path) == 0
    assert [one.seq for one in await store.read(found)] == [*range(1, 16)]
    assert await store.extent("t") == Extent()
    assert_same(await store.read("s"), entries(1, 9))


READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("SELECT 1 FROM sessions").fetchone()
print("ready", flush=True)
sys.stdin.read()
"""


VISITOR = """
import asyncio, sys
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries
asyncio.run(SqliteStore(sys.argv[1]).append("new", entries(1, 1, session_id="new")))
"""


async def test_a_database_in_use_is_not_repaired(path: Path, store: SqliteStore, other: SqliteStore) -> None:
    await filled(path, 30)
    overwritten_page(path, "checkpoints", 0)
    broken = path.read_bytes()
    with running(READER, str(path)):
        assert await exit_code(path) == 1
        assert path.read_bytes() == broken
    await other.append("new", entries(1, 1, session_id="new"))
    await refused(store.repair(None), says="in use")
    await other.close()
    await store.repair(None)
    assert len(await store.read("new")) == 1


async def test_a_program_that_came_during_a_repair_loses_no_message(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds to a session that is not damaged: then the repair must not take its place."""
    await filled(path)
    overwritten_page(path, "checkpoints", 0)
    copy_into = sqlite_repair._copy_into  # pyright: ignore[reportPrivateUsage]

    def visited(new_path: Path, old_path: Path) -> list[Repair]:
        repairs = copy_into(new_path, old_path)
        subprocess.run([sys.executable, "-c", VISITOR, str(path)], check=True)
        return repairs

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_repair, "_copy_into", visited)
        await refused(store.repair(None), says="in use")
    assert await exit_code(path) == 0
    assert_same(await store.read("new"), entries(1, 1, session_id="new"))


FOUND = [1392, 1963]  # seeds that once broke a promise


@pytest.mark.parametrize("count", [30, pytest.param(3_000, marks=pytest.mark.soak)])
async def test_a_damaged_database_is_reported_and_repaired_and_nothing_in_it_is_altered(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them, in a soak; a VACUUM has rewritten every other file."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.WARNING)
    made = [await build(tmp_path / f"erased-{erased}.db", erased=erased) for erased in (False, True)]
    (work := tmp_path / "work").mkdir()
    broken: list[str] = []
    outcomes: set[str] = set()
    for seed in (*range(count), *FOUND):
        data, sessions = made[seed % 2]
        kind, damaged = damage(data, random.Random(seed))
        try:
            outcomes.add(await try_out(work / "sessions.db", damaged, sessions))
        except Exception as problem:  # noqa: BLE001 - which ones come is the question
            broken.append(f"seed {seed}, {kind}: {type(problem).__name__}: {problem}")
    assert broken == []
    assert outcomes >= {"sound", "refused"}
