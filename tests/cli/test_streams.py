"""Whatever standard output is, a command ends in order: its encoding, a full disk, a closed pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_cli.store_options import run_command
from amplifier_context_core.errors import SessionLost
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.cli.kept import keep
from tests.demo.conftest import clone_at

ODD = "café … → █ 日本 \x1b[2J"
COMMAND = [sys.executable, "-c", "from amplifier_context_cli import main; main()"]


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """The URL of a store with two sessions; their messages are in many alphabets."""
    url = f"jsonl:{tmp_path / 'sessions'}"
    for name in ("one", "zwei-日本"):
        keep(url, name, ConversationBuilder().user(ODD).work(3, "loader").say(f"Done: {ODD}").messages)
    return url


@pytest.fixture
def arguments(kept: str, tmp_path: Path) -> Callable[[str], list[str]]:
    """Commands of each way to print, with their arguments."""
    (tmp_path / "clone").mkdir()
    clone = str(clone_at(tmp_path / "clone"))
    return {
        "run": ["run", f"{clone}/examples/explore.yaml", "--path", clone, "--budget", "3000"],
        "show": ["show", "one", "--store", kept],
        "show --json": ["show", "one", "--json", "--store", kept],
        "an error": ["show", "drei-日本", "--store", kept],
        "help": ["show", "--help"],
    }.__getitem__


@pytest.mark.kernel
@pytest.mark.parametrize(("name", "encoding"), [("show", "cp1252"), ("run", "latin-1"), ("an error", "cp1252")])
def test_every_command_prints_in_every_encoding(
    arguments: Callable[[str], list[str]], name: str, encoding: str
) -> None:
    done = CliRunner(charset=encoding).invoke(main, arguments(name))
    assert done.exit_code == (1 if name == "an error" else 0), done.output
    assert not isinstance(done.exception, UnicodeError)
    text = done.output_bytes.decode(encoding)
    assert text.strip()
    if name == "show":
        assert "café … ? ? ??" in text


def test_json_is_the_same_data_in_ascii(kept: str) -> None:
    def shown(charset: str) -> list[object]:
        done = CliRunner(charset=charset).invoke(main, ["show", "one", "--json", "--store", kept])
        return [json.loads(line) for line in done.output_bytes.decode(charset).splitlines()]

    assert shown("ascii") == shown("utf-8")
    assert ODD in str(shown("ascii")[0]) or json.dumps(ODD) in json.dumps(shown("ascii")[0])


def run_into(output: int, arguments: list[str]) -> tuple[int, str]:
    """Run a command as a process; return its exit code and what it said."""
    process = subprocess.run(
        [*COMMAND, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return process.returncode, process.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.kernel
@pytest.mark.parametrize("name", ["run", "show --json", "help"])
def test_an_output_that_is_full_is_one_clear_line_and_a_closed_pipe_ends_the_command_without_a_word(
    arguments: Callable[[str], list[str]], name: str
) -> None:
    with open("/dev/full", "w") as full:
        code, said = run_into(full.fileno(), arguments(name))
    assert code == 1
    assert said.strip().splitlines()[-1] == "Error: the output cannot be written: No space left on device"
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    read, write = os.pipe()
    os.close(read)
    try:
        assert run_into(write, arguments(name)) == (1, "")
    finally:
        os.close(write)


@pytest.mark.skipif(sys.platform == "win32", reason="a current folder cannot be deleted there")
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "one"],
        ["copy", "jsonl:here", "sqlite:there.db"],
    ],
)
def test_a_deleted_current_folder_is_reported(tmp_path: Path, arguments: list[str]) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    code = f"import os; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r}); {COMMAND[2]}"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line in (
        "Error: the current folder was deleted; change to another folder and repeat the command",
        "Error: there is no folder here; check the URL",  # the folder "here" of `copy`, which is looked for first
    )


def test_without_a_standard_output_a_command_still_works(kept: str) -> None:
    command = f'exec "$0" -c "$1" show one --store "{kept}" >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command, *(COMMAND[0], COMMAND[2])], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_that_is_gone_from_its_store_is_reported_as_gone() -> None:
    async def work() -> None:
        raise SessionLost("s")

    with pytest.raises(click.ClickException, match="is gone from the store"):
        run_command(work())
