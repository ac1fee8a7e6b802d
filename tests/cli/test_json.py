"""Each command reports in JSON with `--json`, and nothing else is on its standard output then."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from amplifier_context_cli.app import main
from tests.cli.kept import Run

ARGUMENTS = {
    **dict.fromkeys(("sessions", "verify", "repair", "doctor", "notes"), ""),
    **dict.fromkeys(("pin", "unpin", "rewind", "forget"), "one m2"),
    "search": "one key",
    "compact": "one --budget 5k",
    "copy": "sqlite:sessions.db sqlite:other.db",
    "report": "one -o page.html",
    "import": "in.json",
    "export": "one --format atif -o one.json",
    "prune": "--keep 0",
    "notes add": "text",
    "notes edit": "n1 text",
    "notes delete": "n1",
}  # of other commands: one
NOTES = main.commands["notes"]
assert isinstance(NOTES, click.Group)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", [*main.commands, *(f"notes {name}" for name in NOTES.commands)])
def test_each_command_reports_in_json(
    run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", filled)
    monkeypatch.chdir(tmp_path)
    Path("in.json").write_text('[{"role": "user", "content": "Hello."}]')
    run("pin", "one", "m1")
    run("notes", "add", "note")
    done = run(*name.split(), *ARGUMENTS.get(name, "one").split(), "--json", stdin="y\n")
    lines = [line for line in done.stdout.splitlines() if line.strip() != "y"]  # the runner's echo of the answer
    assert lines
    assert all(type(json.loads(line)) is dict for line in lines)
