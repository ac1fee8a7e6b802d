"""`forget` on stores of files: no byte of the text is left, in forks neither."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kept import SECRET, Run, keep, messages


def test_what_is_forgotten_is_nowhere_in_the_files(run: Run, filled: str, tmp_path: Path) -> None:
    assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    run("forget", "one", "--containing", "--yes", "--store", filled, stdin=f"{SECRET}\n")
    run("forget", "two", "m21", "--yes", "--store", filled)
    assert [m["content"] for m in messages(run, "one", filled)][20] == "(erased)"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    assert "sound" in run("verify", "one", "--store", filled).output


def test_forgetting_a_missing_message_is_reported(run: Run, filled: str) -> None:
    assert "not in one: m9999" in run("forget", "one", "m9999", "--yes", "--store", filled, code=1).output
    assert "is no mark" in run("forget", "one", "x", "--yes", "--store", filled, code=2).output
    run("forget", "one", "--yes", "--store", filled, code=2)


@pytest.mark.parametrize("what", [("m21",), ("--containing",)])
def test_forks_that_hold_what_is_forgotten_are_named_with_the_way_out(
    run: Run, filled: str, tmp_path: Path, what: tuple[str, ...]
) -> None:
    stdin = f"{SECRET}\n"
    run("delete", "two", "--yes", "--store", filled)
    run("fork", "one", "before", "--at", "m10", "--store", filled)
    run("fork", "one", "child", "--store", filled)
    run("fork", "child", "grandchild", "--at", "m40", "--store", filled)
    output = run("forget", "child", *what, "--yes", "--store", filled, stdin=stdin).output
    commands = dict(line.split(" contains the same; to erase it there: ") for line in output.splitlines()[1:])
    assert set(commands) == {"one", "grandchild"}
    for command in commands.values():
        run(*shlex.split(command.strip("`"))[1:], "--yes", stdin=stdin)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    again = run("forget", "one", "m21", "--yes", "--store", filled).output
    assert again == "one: 1 message erased\n"  # what was erased before is nowhere else


def test_what_is_forgotten_is_forgotten_in_forks_too_when_asked(run: Run, filled: str, tmp_path: Path) -> None:
    run("delete", "two", "--yes", "--store", filled)
    run("fork", "one", "child", "--store", filled)
    keep(filled, "child", [f"so I use {SECRET}"])
    output = run("forget", "one", "--containing", "--forks", "--yes", "--store", filled, stdin=SECRET).output
    assert sorted(output.splitlines()) == ["child: 2 messages erased", "one: 1 message erased"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
def test_a_text_that_is_piped_in_is_read_without_a_word(filled: str) -> None:
    command = [sys.executable, "-c", "from amplifier_context_cli import main; main()", "forget", "one"]
    command += ["--containing", "--store", filled]

    def piped(*options: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*command, *options], input=f"{SECRET}\r\n", capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = piped()
    assert (code, out) == (2, "")
    assert "the command cannot ask for confirmation: pass --yes" in err
    assert piped("--yes") == (0, "one: 1 message erased\n", "")


def test_a_text_is_forgotten_however_it_is_escaped(run: Run, url: str) -> None:
    secret = 'p"w\\x-sécret'
    arguments = json.dumps({"key": secret})

    call = {"id": "c", "type": "function", "function": {"name": "use", "arguments": arguments}}
    said = [
        f"the key is {secret}",
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"sent": arguments}, ensure_ascii=False)},
        f"\ud800 and again {secret}",
        "nothing here",
    ]
    keep(url, "one", said)
    assert (
        "4 messages erased" in run("forget", "one", "--containing", "--yes", "--store", url, stdin=f"{secret}\n").output
    )
    assert "sécret" not in run("show", "one", "--full", "--store", url).output
