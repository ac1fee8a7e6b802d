"""`amplifier-context notes`: a person lists, adds, edits and deletes what agents keep."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli.app import main
from amplifier_context_core.stores import open_store
from amplifier_context_recall.notes import Notes, notes_id
from tests.pages import ROOT


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, ["notes", *arguments], input=input)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("store", [(), ("--store", "sqlite:notes.db"), ("--store", "jsonl:kept/{project}")], ids=str)
def test_notes_are_added_listed_edited_and_deleted(store: tuple[str, ...]) -> None:
    assert run(*store, "add", "Use tabs.").output == "n1 is kept\n"
    assert run(*store, "add", input="Of two\nlines.\n").output == "n2 is kept\n"
    listed = run(*store).output.splitlines()
    assert listed[0].startswith("   n1  20")
    assert listed[1] == "       Use tabs."
    assert listed[3:] == ["       Of two", "       lines."]
    assert run(*store, "edit", "n1", "Use spaces.").output == "n1 is changed\n"
    assert run(*store, "delete", "n2").output == "1 note erased\n"
    (note,) = [json.loads(line) for line in run(*store, "--json").output.splitlines()]
    assert (note["mark"], note["text"]) == ("n1", "Use spaces.")
    assert note["author"].startswith("person")


def test_the_options_may_come_before_or_after_the_command(tmp_path: Path) -> None:
    store, other = ("--store", f"sqlite:{tmp_path / 'notes.db'}"), tmp_path / "other"
    other.mkdir()
    assert run("add", "Use tabs.", *store, "--project", str(other)).output == "n1 is kept\n"
    assert "Use tabs." in run(*store, "--project", str(other)).output
    assert "no notes of this project" in run(*store).output
    assert run(*store, "edit", "n1", "Use spaces.", "--project", str(other)).output == "n1 is changed\n"
    assert run("--project", str(other), "delete", "n1", *store).output == "1 note erased\n"


def test_the_commands_reach_what_an_agent_kept_in_the_default_store(project: Path) -> None:
    from amplifier_context_core.default_paths import sessions_folder

    notes = Notes(lambda: open_store(f"jsonl:{sessions_folder(project)}"), notes_id(project))
    asyncio.run(notes.add("secret", "agent, session s"))
    assert "agent, session s" in run().output
    assert run("--project", str(project), "delete", "n1").exit_code == 0
    assert "no notes of this project" in run().output
    assert not any(b"secret" in path.read_bytes() for path in sessions_folder(project).rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("edit", "n7", "x"), "there is no note n7"),
        (("delete", "n7", "n1"), "there is no note n7"),
        (("delete", "7x"), "'7x' is no mark of a note, such as n3"),
        (("add", " "), "note: must be a text that is not empty"),
        (("add", "x" * 1_001), "a note has at most 1,000"),
        (("--store", "sqlite:nowhere.db"), "there is no database nowhere.db"),
        (("--store", "memory:", "add", "x"), "memory: ends with this command"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_an_error_in_a_line(arguments: tuple[str, ...], expected: str) -> None:
    run("add", "one")
    result = run(*arguments)
    assert result.exit_code != 0
    assert expected in result.output
    assert "Traceback" not in result.output


def test_delete_says_what_it_erased_and_erases_nothing_where_a_word_is_no_mark() -> None:
    run("add", "one")
    run("add", "two")
    assert run("delete", "n1", "bogus").exit_code == 2
    assert "one" in run().output
    result = run("delete", "n1", "N1", "n7")
    assert result.exit_code == 1
    assert result.output.splitlines() == ["1 note erased", "Error: there is no note n7"]
    assert "one" not in run().output
    assert run("delete", "n1", "n2").output == "1 note erased\nerased before: n1\n"


def test_a_note_cannot_control_the_terminal() -> None:
    run("add", "a\x1b[2Jb")
    assert "\x1b" not in run().output


def test_notes_are_no_session_of_a_list_and_no_fork_gets_their_id() -> None:
    store = ("--store", "sqlite:notes.db")
    run(*store, "add", "secret")
    listed = CliRunner().invoke(main, ["sessions", *store])
    assert "no sessions in" in listed.output
    assert CliRunner().invoke(main, ["fork", notes_id(), *store]).exit_code == 0
    assert f"{notes_id()}-at-end" in CliRunner().invoke(main, ["sessions", *store]).output, "the copy is a conversation"
    forked = CliRunner().invoke(main, ["fork", f"{notes_id()}-at-end", notes_id(Path("/elsewhere")), *store])
    assert forked.exit_code == 1
    assert "names notes of a project" in forked.output


def test_run_refuses_the_id_of_notes() -> None:
    done = CliRunner().invoke(main, ["run", str(ROOT / "examples" / "explore.yaml"), "--session", "notes.p-12345678"])
    assert "names notes of a project" in done.output
