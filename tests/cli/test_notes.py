"""`amplifier-context notes`: a person lists, adds, edits and deletes what agents keep."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from amplifier_context_core.default_paths import sessions_folder
from amplifier_context_core.stores import open_store
from amplifier_context_recall.notes import Notes, notes_id
from tests.cli.kept import is_in_files, rows, run
from tests.pages import ROOT


def notes(*arguments: str, **options: Any) -> Result:
    return run("notes", *arguments, **options)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("store", ["", "sqlite:notes.db", "jsonl:kept/{project}"])
def test_notes_are_added_listed_edited_and_deleted(store: str) -> None:
    assert notes("add", "Use tabs.", at=store).output == "n1 is kept\n"
    assert notes("add", stdin="Of two\nlines \x1b[2J.\n", at=store).output == "n2 is kept\n"
    listed = notes(at=store).output.splitlines()
    assert listed[3:] == ["       Of two", "       lines  [2J."], "a note cannot control the terminal"
    assert notes("edit", "n1", "Use spaces.", at=store).output == "n1 is changed\n"
    assert notes("delete", "n2", at=store).output == "1 note erased\n"
    (note,) = rows("notes", at=store)
    assert (note["mark"], note["text"], note["author"][:6]) == ("n1", "Use spaces.", "person")


def test_the_commands_reach_what_an_agent_kept_in_the_default_store(project: Path) -> None:
    folder = sessions_folder(project)
    asyncio.run(Notes(lambda: open_store(f"jsonl:{folder}"), notes_id(project)).add("secret", "agent, session s"))
    assert "agent, session s" in notes().output
    assert "no notes of this project" in notes("--project", str(folder)).output
    notes("--project", str(project), "delete", "n1")
    assert "no notes of this project" in notes().output
    assert not is_in_files("secret", folder)


def test_what_cannot_be_done_is_an_error_in_a_line() -> None:
    notes("add", "one")
    for arguments in (
        "edit n7 x",
        "delete 7x",
        f"add {'x' * 1_001}",
        "--store sqlite:nowhere.db",
        "--store memory: add x",
    ):
        assert "Error: " in notes(*arguments.split(), code=None).output
    assert len(rows("notes")) == 1


def test_delete_says_what_it_erased_and_erases_nothing_where_a_word_is_no_mark() -> None:
    notes("add", "one")
    notes("add", "two")
    notes("delete", "n1", "bogus", code=2)
    assert "one" in notes().output
    lines = notes("delete", "n1", "N1", "n7", code=1).output.splitlines()
    assert lines == ["1 note erased", "Error: there is no note n7"]
    assert "one" not in notes().output
    assert notes("delete", "n1", "n2").output == "1 note erased\nerased before: n1\n"


def test_notes_are_no_session_and_no_session_gets_their_id() -> None:
    at = "sqlite:notes.db"
    notes("add", "secret", at=at)
    assert "no sessions in" in run("sessions", at=at).output
    run("fork", notes_id(), at=at)
    assert f"{notes_id()}-at-end" in run("sessions", at=at).output, "the copy is a conversation"
    forked = run("fork", f"{notes_id()}-at-end", notes_id(Path("/elsewhere")), at=at, code=1)
    assert "names notes of a project" in forked.output
    plan = str(ROOT / "examples" / "explore.yaml")
    assert "names notes of a project" in run("run", plan, "--session", "notes.p-12345678", code=2).output
