"""The commands that look after stored sessions: `verify`, `repair`, `copy`, `fork`, `rewind`, `delete`."""

import json
import re
import shlex
from pathlib import Path
from typing import NoReturn

import pytest

from amplifier_context_cli.maintenance import INCOMPLETE
from amplifier_context_core import ContextManager, Entry
from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Extent, Store, open_store
from amplifier_context_core.stores.protocol import OnRepair
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry
from tests.cli.kept import fill, in_session, in_store, messages, opened, rows, run, viewed
from tests.stores.jsonl.files import garble
from tests.stores.sqlite.damage import overwritten_page

IS_JSONL = pytest.mark.parametrize("url", ["jsonl"], indirect=True)


@pytest.mark.parametrize("command", ["sessions", "show one", "verify", "repair one", "fork one", "delete one --yes"])
def test_a_mistyped_url_is_reported_and_nothing_is_created_there(url: str, tmp_path: Path, command: str) -> None:
    for at in ("", "nonsense", "ftp://x", "sqlite:/proc/none/x.db"):
        assert run(*command.split(), at=at, code=1).output.startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_session_in_use_is_shown_but_not_changed(filled: str) -> None:
    with opened(filled, "one"):
        assert len(messages("one")) == 121
        for command in ("delete one --yes", "forget one m2 --yes", "repair one", "rewind one m1 --yes"):
            shown = run(*command.split(), code=1).output
            in_use = r"Error: session 'one' is in use by pid .*; end that process and repeat the command\n"
            assert re.fullmatch(in_use, shown)
        assert "pid" in run("sessions").output


def test_sessions_are_copied_with_archive_and_checkpoint(filled: str, tmp_path: Path) -> None:
    async def edit(manager: ContextManager) -> list[str]:
        history = await manager.get_messages()
        await manager.set_messages([*history[:100], *history[101:]])
        return [entry.mark for entry in await manager.store.archived("one")]

    archived = in_session(filled, edit)
    assert archived
    other = f"sqlite:{tmp_path / 'copy.db'}" if filled.startswith("jsonl") else f"jsonl:{tmp_path / 'copy'}"
    assert "2 of 2 sessions copied" in run("copy", filled, other).output
    assert messages("one", at=other) == messages("one")
    assert [row["mark"] for row in messages("one", "--archived", at=other)] == archived
    assert [row["session_id"] for row in rows("sessions", at=other)] == [row["session_id"] for row in rows("sessions")]
    assert viewed("two", at=other) == viewed("two")
    again = run("copy", filled, other).output
    assert "0 of 2" in again
    assert "exists there, not changed" in again
    for places in ((filled, "memory:"), ("memory:", filled)):
        assert "name a persistent store" in run("copy", *places, code=1).output


def test_a_copy_gives_no_seq_again_that_was_given(url: str, tmp_path: Path) -> None:
    async def fill_and_cut(store: Store) -> None:
        await store.append("one", entries(1, 4, session_id="one"))
        await store.replace("one", 2, ())

    in_store(url, fill_and_cut, archive=False)
    other = f"jsonl:{tmp_path / 'other'}"
    run("copy", url, other)
    found = [in_store(where, lambda store: store.extent("one")) for where in (url, other)]
    assert [(one.length, one.last_seq) for one in found] == [(2, 4)] * 2


def test_what_an_interrupted_copy_left_is_copied_again(filled: str, tmp_path: Path) -> None:
    other, third = f"jsonl:{tmp_path / 'other'}", f"sqlite:{tmp_path / 'third.db'}"
    begun = in_store(filled, lambda store: store.read("one", 0, 2))

    async def begin(store: Store) -> None:
        await store.save_checkpoint("one", 0, INCOMPLETE)
        await store.append("one", begun)

    in_store(other, begin)
    run("copy", other, third)
    for target in (other, third):
        assert "1 of 1 session copied" in run("copy", filled, target, "--session", "one").output
        assert messages("one", at=target) == messages("one")
        assert "one: exists there, not changed" in run("copy", filled, target).output


@pytest.mark.parametrize("change", ["append", "edit"])
def test_an_incomplete_copy_that_a_host_continued_is_not_copied_again(filled: str, tmp_path: Path, change: str) -> None:
    other = f"jsonl:{tmp_path / 'other'}"

    async def go_on(store: Store) -> None:
        await store.save_checkpoint("one", 0, INCOMPLETE)
        await store.append("one", entries(1, 2, session_id="one"))
        await store.replace("one", 2 if change == "append" else 1, [entry(3, "of the host", session_id="one")])
        if change == "edit":
            await store.replace("one", 1, [])

    async def kept(store: Store) -> list[Entry]:
        return [*await store.read("one"), *await store.archived("one")]

    in_store(other, go_on)
    before = in_store(other, kept)
    shown = run("copy", filled, other).output
    assert "one: exists there, not changed; it is an incomplete copy with changes of its own" in shown
    assert in_store(other, kept) == before


def test_a_copy_that_fails_names_the_reason_even_if_it_cannot_take_back_what_it_wrote(
    filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> NoReturn:
        raise StoreError("the disk is full")

    async def kept(*_: object) -> NoReturn:
        raise NotErased("the former bytes are still there")

    other = f"sqlite:{tmp_path / 'other.db'}"
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "append", full)
        patch.setattr(SqliteStore, "delete", kept)
        assert run("copy", filled, other, "--session", "two", code=1).output == "Error: the disk is full\n"
    run("copy", filled, other, "--session", "two")
    assert messages("two", at=other) == messages("two")


def test_what_a_host_creates_amid_a_copy_stays(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, opened_first = f"sqlite:{tmp_path / 'other.db'}", SqliteStore.open

    async def open_late(store: SqliteStore, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        monkeypatch.setattr(SqliteStore, "open", opened_first)
        host = open_store(other)
        await host.append(session_id, [entry(1, "of the host", session_id=session_id)])
        await host.close()
        return await store.open(session_id, on_repair)

    monkeypatch.setattr(SqliteStore, "open", open_late)
    assert "one: exists there, not changed\n" in run("copy", filled, other, "--session", "one", code=1).output
    assert "of the host" in str(messages("one", at=other))


def test_a_fork_ends_at_its_mark(filled: str) -> None:
    for mark, count in (("m30", 30), ("u1", 1)):
        run("fork", "one", mark, "--at", mark)
        assert messages(mark) == messages("one")[:count]
    assert "no m999" in run("fork", "one", "--at", "m999", code=1).output
    assert "is not a mark" in run("fork", "one", "--at", "x1", code=2).output
    assert "already" in run("fork", "one", "two", code=1).output


def test_a_rewind_archives_what_came_later_and_the_session_goes_on_from_there(filled: str) -> None:
    before = messages("one")
    for mark, code in (("m999", 1), ("m30; rm", 2), ("m60", 1)):
        run("rewind", "one", mark, stdin="n\n", code=code)
    assert messages("one") == before
    shown = run("rewind", "one", "m60", "--yes").output
    assert "60 messages; the 61 messages after m60 are in its archive" in shown
    assert messages("one") == before[:60]
    assert messages("one", "--archived") == before[60:]
    assert "m60 is its newest message" in run("rewind", "one", "m60").output
    assert "one: sound" in run("verify", "one").output
    assert "m61" not in json.dumps(viewed("one"))


def test_a_deleted_session_is_gone_and_only_after_a_yes(filled: str) -> None:
    run("delete", "one", stdin="n\n", code=1)
    assert len(messages("one")) == 121
    run("delete", "one", stdin="y\n")
    assert "one" not in run("sessions").output
    assert len(messages("two")) == 41


def fill_two(url: str) -> None:
    """Keep two sessions, of 12 and of 6 messages."""

    async def fill_it(store: Store) -> None:
        await store.append("one", entries(1, 12, session_id="one"))
        await store.append("two", entries(1, 8, session_id="two"))
        await store.replace("two", 6, ())

    in_store(url, fill_it)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of two sessions, with a page that cannot be read."""
    path = tmp_path / "sessions.db"
    fill_two(f"sqlite:{path}")
    overwritten_page(path, "checkpoints", 0)
    return path


def test_verify_names_the_commands_that_repair(tmp_path: Path, database: Path) -> None:
    url = f"jsonl:{tmp_path / 'with a blank'}"
    for name in ("one", "two too"):
        fill(url, name, 30, 4)
        garble(tmp_path / "with a blank" / name / "context.db", 11)
    for at, count in ((url, 2), (f"sqlite:{database}", 1)):
        shown = run("verify", at=at, code=1).output
        commands = re.findall("`(.*)` repairs what can be repaired", shown)
        assert len(commands) == count
        for command in commands:
            run(*shlex.split(command)[1:])
        assert "one: sound" in run("verify", at=at).output


def test_only_repair_replaces_a_damaged_database_and_reports_that(database: Path) -> None:
    url = f"sqlite:{database}"
    for reading in (("sessions",), ("show", "one")):
        run(*reading, at=url)
        assert not list(database.parent.glob("sessions.db.damaged-*"))
    *_, first, one, two = run("repair", at=url).output.splitlines()
    assert first.startswith(f"{url}: copied 2 sessions, 20 messages with archives, into a new file")
    (kept,) = database.parent.glob("sessions.db.damaged-*")
    assert first.endswith(f"0 messages lost; the damaged bytes are kept in {kept.name}")
    assert sorted([one, two]) == ["one: 12 messages, sound", "two: 6 messages, sound"]


def test_all_sessions_of_files_are_repaired_and_one_in_use_is_named(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    fill_two(url)
    for name in ("one", "two"):
        garble(tmp_path / name / "context.db", 3)
    with opened(url, "two"):
        shown = run("repair", at=url, code=1).output
    assert re.search(r"^  repaired: .*\n(.*\n)?one: 12 messages, 2 repairs, 1 message lost", shown, re.MULTILINE)
    assert "two: session 'two' is in use by pid" in shown
    (tmp_path / "one" / "context.db").write_bytes(b"no database" * 1_000)
    assert "python -m amplifier_context_core.repair" in run("show", "one", at=url, code=1).output
    assert "the messages are those of context-messages.jsonl" in run("repair", at=url).output
    assert list((tmp_path / "one").glob("context.db.damaged-*"))
    sound = ["one: 12 messages, sound", "two: 6 messages, sound"]
    assert sorted(run("repair", at=url).output.splitlines()) == sound


@IS_JSONL
def test_a_command_on_a_damaged_session_names_the_one_that_finds_or_repairs_it(filled: str, tmp_path: Path) -> None:
    """A copy that would be incomplete is not kept."""
    garble(Path(filled.partition(":")[2]) / "one" / "context.db", 61)
    target = f"sqlite:{tmp_path / 'copy.db'}"
    for command in ("view one", "explain one", "search one key", "show one", f"copy {filled} {target} --session one"):
        shown = run(*command.split(), code=1).output
        assert f"1 message of one cannot be read: `amplifier-context verify --store {filled} one`" in shown, command
    assert "no sessions" in run("sessions", at=target).output
    done = run("forget", "one", "m1", "--yes", code=1)
    assert "1 damaged message was left out" in done.stderr
    assert "python -m amplifier_context_core.repair FILE" in done.stderr
