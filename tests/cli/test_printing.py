"""What commands print: amounts and texts for people, JSON for programs, whatever standard output is."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_cli.formatting import command, time_text, without_credentials
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.demo.progress import ProgressPrinter
from tests.cli.kept import keep, run
from tests.demo.conftest import clone_at


def test_a_time_is_local_and_says_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert time_text("2025-06-01T12:03:09.123Z") == "2025-06-01 14:03 +0200"
        assert time_text("2025-01-01T12:03:09+00:00") == "2025-01-01 13:03 +0100"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (time_text(""), time_text("unknown")) == ("", "unknown")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jsonl:/a/b@c?d", "jsonl:/a/b@c?d"),
        ("postgresql://user:pa@ss@host:5432/db?password=secret", "postgresql://host:5432/db"),
        ("own:user:secret@place", "own:place"),
        ("redis://host/0", "redis://host/0"),
    ],
)
def test_a_url_is_shown_without_a_password(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
    printed = command("verify", url=url)
    assert "secret" not in printed
    assert ("with the same --store" in printed) == (url != shown)


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
def test_each_command_reports_in_json(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.json").write_text('[{"role": "user", "content": "Hello."}]')
    run("pin", "one", "m1")
    run("notes", "add", "note")
    done = run(*name.split(), *ARGUMENTS.get(name, "one").split(), "--json", stdin="y\n")
    lines = [line for line in done.stdout.splitlines() if line.strip() != "y"]  # the runner's echo of the answer
    assert lines
    assert all(type(json.loads(line)) is dict for line in lines)


ODD = "café … → █ 日本 \x1b[2J"
COMMAND = [sys.executable, "-c", "from amplifier_context_cli import main; main()"]


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """The URL of a store with two sessions; their messages are in many alphabets."""
    url = f"jsonl:{tmp_path / 'sessions'}"
    for name in ("one", "zwei-日本"):
        keep(url, name, ConversationBuilder().user(ODD).work(3, "loader").say(f"Done: {ODD}").messages)
    return url


def of_a_run(tmp_path: Path) -> list[str]:
    """A command that runs a session, with its arguments."""
    (tmp_path / "clone").mkdir()
    clone = str(clone_at(tmp_path / "clone"))
    return ["run", f"{clone}/examples/explore.yaml", "--path", clone, "--budget", "3000"]


@pytest.mark.kernel
def test_every_command_prints_in_every_encoding_and_json_is_the_same_data_in_ascii(kept: str, tmp_path: Path) -> None:
    def shown(charset: str, *arguments: str, code: int = 0) -> str:
        done = CliRunner(charset=charset).invoke(main, arguments)
        assert done.exit_code == code, done.output
        return done.output_bytes.decode(charset)

    assert "café … ? ? ??" in shown("cp1252", "show", "one", "--store", kept)
    assert shown("cp1252", "show", "drei-日本", "--store", kept, code=1)
    assert shown("latin-1", *of_a_run(tmp_path))
    assert json.loads(shown("ascii", "show", "one", "--json", "--store", kept).splitlines()[0])["content"] == ODD


def process(*command: str, **options: int) -> tuple[int, str]:
    """Run a command as a process; return its exit code and what it printed of errors."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **options)
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_output_is_one_line_and_a_closed_pipe_none(kept: str) -> None:
    arguments = ["show", "one", "--json", "--store", kept]
    with open("/dev/full", "w") as full:
        code, said = process(*COMMAND, *arguments, stdout=full.fileno())
    assert (code, said.splitlines()[-1]) == (1, "Error: the output cannot be written: No space left on device")
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    read, write = os.pipe()
    os.close(read)
    assert process(*COMMAND, *arguments, stdout=write) == (1, "")
    os.close(write)
    closed = f'exec "$0" -c "$1" show one --store "{kept}" >&-'
    assert process("/bin/sh", "-c", closed, COMMAND[0], COMMAND[2]) == (0, ""), "there is no standard output"


@pytest.mark.kernel
@pytest.mark.parametrize("lines", [1, 6])
def test_a_run_whose_reader_closes_the_pipe_prints_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """It is closed before the warning of a key that is unknown, while the session is opened, or in a turn."""
    printed = iter(range(lines))
    show = ProgressPrinter.print

    def until_closed(*arguments: Any) -> None:
        if next(printed, None) is None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        show(*arguments)

    monkeypatch.setattr(ProgressPrinter, "print", until_closed)
    arguments = of_a_run(tmp_path)
    plan = Path(arguments[1])
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.replace("{module: context-simple}", "{module: context-simple, config: {no_such_key: 1}}"))
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stderr) == (1, "")
    assert ("no_such_key" in done.stdout) is (lines > 1)
