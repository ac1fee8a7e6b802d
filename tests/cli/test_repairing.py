"""`amplifier-context repair` of whole stores: it prints what it did, and what came back under another id is found."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amplifier_context_core.stores import Store, open_store
from amplifier_context_testing.contract.samples import entries
from tests.cli.kept import Run, opened
from tests.stores.jsonl.files import garble
from tests.stores.sqlite.damage import overwritten_page


def fill(url: str) -> None:
    async def work(store: Store) -> None:
        await store.append("one", entries(1, 12, session_id="one"))
        await store.append("two", entries(1, 8, session_id="two"))
        await store.replace("two", 6, ())
        await store.close()

    asyncio.run(work(open_store(url)))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of two sessions, with a page that cannot be read."""
    path = tmp_path / "sessions.db"
    fill(f"sqlite:{path}")
    overwritten_page(path, "checkpoints", 0)
    return path


def test_verify_names_the_command_that_repairs_a_whole_store(run: Run, database: Path) -> None:
    url = f"sqlite:{database}"
    output = run("verify", "--store", url, code=1).output
    (command,) = re.findall("`(amplifier-context repair --store .*)` repairs what can be repaired", output)
    run(*shlex.split(command)[1:])
    assert "one: sound" in run("verify", "--store", url).output


@pytest.mark.parametrize("before", [(), ("sessions",), ("show", "one")], ids=["nothing", "sessions", "show"])
def test_only_repair_replaces_a_damaged_database_and_reports_that(
    run: Run, database: Path, before: tuple[str, ...]
) -> None:
    url = f"sqlite:{database}"
    if before:
        run(*before, "--store", url)
        assert not list(database.parent.glob("sessions.db.damaged-*"))
    *_, first, one, two = run("repair", "--store", url).output.splitlines()
    assert first.startswith(f"{url}: copied 2 sessions, 20 messages with archives, into a new file")
    (kept,) = database.parent.glob("sessions.db.damaged-*")
    assert first.endswith(f"0 messages lost; the damaged bytes are kept in {kept.name}")
    assert sorted([one, two]) == ["one: 12 messages, sound", "two: 6 messages, sound"]
    assert "copied" not in run("repair", "--store", url).output


def test_a_session_that_lost_its_id_is_named_with_the_command_that_restores_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    url = f"sqlite:{path}"
    fill(url)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET id = x'ff' WHERE id = 'one'")
    output = run("repair", "--store", url).output
    assert "recovered-1: 12 messages" in output
    assert "session 'recovered-1': 12 messages copied, archive included; its id and length could not be read" in output
    (command,) = re.findall("the id of recovered-1 cannot be read; if you know it, restore it with `(.*) ID`", output)
    run(*shlex.split(command)[1:], "one")
    assert "one: 12 messages, " in run("repair", "one", "--store", url).output
    assert len(run("show", "one", "--store", url).output.splitlines()) == 12


def test_all_sessions_of_files_are_repaired_and_one_in_use_is_named(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    fill(url)
    for name in ("one", "two"):
        garble(tmp_path / name / "context.db", 3)
    assert "one: 1 problem\n" in run("verify", "one", "--store", url, code=1).output
    with opened(url, "two"):
        output = run("repair", "--store", url, code=1).output
    assert re.search(r"^  repaired: .*\n(.*\n)?one: 12 messages, 2 repairs, 1 message lost", output, re.MULTILINE)
    assert "two: session 'two' is in use by pid" in output
    run("repair", "--store", url)
    assert sorted(run("repair", "--store", url).output.splitlines()) == [
        "one: 12 messages, sound",
        "two: 6 messages, sound",
    ]


@pytest.fixture
def garbled(filled: str) -> str:
    """A store whose session `one` has a message that is not as it was written."""
    garble(Path(filled.partition(":")[2]) / "one" / "context.db", 61)
    return filled


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
@pytest.mark.parametrize(
    "arguments", [("view", "one"), ("explain", "one"), ("search", "one", "key"), ("show", "one")], ids=" ".join
)
def test_a_command_that_cannot_read_all_messages_names_the_one_that_looks_for_damage(
    run: Run, garbled: str, arguments: tuple[str, ...]
) -> None:
    output = run(*arguments, "--store", garbled, code=1).output
    assert f"1 message of one cannot be read: `amplifier-context verify --store {garbled} one`" in output


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
def test_an_incomplete_copy_is_not_kept(run: Run, garbled: str, tmp_path: Path) -> None:
    target = f"sqlite:{tmp_path / 'copy.db'}"
    output = run("copy", garbled, target, "--session", "one", code=1).output
    assert f"1 message of one cannot be read: `amplifier-context verify --store {garbled} one`" in output
    assert "no sessions" in run("sessions", "--store", target).output


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
def test_a_command_that_would_change_a_damaged_session_names_the_one_that_repairs(run: Run, garbled: str) -> None:
    done = run("forget", "one", "m1", "--yes", "--store", garbled, code=1)
    assert "1 damaged message was left out" in done.stderr
    assert "python -m amplifier_context_core.repair FILE" in done.stderr


def test_a_session_whose_database_is_no_database_is_taken_from_its_text_file(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    fill(url)
    (tmp_path / "one" / "context.db").write_bytes(b"no database" * 1_000)
    assert "python -m amplifier_context_core.repair" in run("show", "one", "--store", url, code=1).output
    output = run("repair", "one", "--store", url).output
    assert "the messages are those of context-messages.jsonl" in output
    assert "one: 12 messages, " in output
    assert "one: sound" in run("verify", "one", "--store", url).output
    assert len(list((tmp_path / "one").glob("context.db.damaged-*"))) == 1
