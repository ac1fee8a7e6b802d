"""`forget` on stores of files: no byte of the text is left, in forks neither."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from tests.cli.kept import SECRET, Run, messages


def test_what_is_forgotten_is_nowhere_in_the_files(run: Run, filled: str, tmp_path: Path) -> None:
    assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    run("forget", "one", "--containing", "--yes", "--store", filled, stdin=f"{SECRET}\n")
    run("forget", "two", "m21", "--yes", "--store", filled)
    assert [m["content"] for m in messages(run, "one", filled)][20] == "(erased)"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    assert "sound" in run("verify", "one", "--store", filled).output


def test_what_is_forgotten_is_forgotten_in_forks_too_when_asked(run: Run, filled: str, tmp_path: Path) -> None:
    async def say_it_again() -> None:
        store = open_store(filled)
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="child", store=store)
        await manager.add_message({"role": "user", "content": f"so I use {SECRET}"})
        await manager.close()

    run("delete", "two", "--yes", "--store", filled)
    run("fork", "one", "child", "--store", filled)
    asyncio.run(say_it_again())
    output = run("forget", "one", "--containing", "--forks", "--yes", "--store", filled, stdin=SECRET).output
    assert sorted(output.splitlines()) == ["child: 2 messages erased", "one: 1 message erased"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
def test_a_text_that_is_piped_in_is_read_without_a_word(filled: str) -> None:
    command = [sys.executable, "-c", "from amplifier_context_core.cli import main; main()", "forget", "one"]
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

    async def fill() -> None:
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="one", store=open_store(url))
        for message in (
            {"role": "user", "content": f"the key is {secret}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "use", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": json.dumps({"sent": arguments}, ensure_ascii=False)},
            {"role": "user", "content": f"\ud800 and again {secret}"},
            {"role": "user", "content": "nothing here"},
        ):
            await manager.add_message(message)
        await manager.close()

    asyncio.run(fill())
    assert (
        "4 messages erased" in run("forget", "one", "--containing", "--yes", "--store", url, stdin=f"{secret}\n").output
    )
    assert "sécret" not in run("show", "one", "--full", "--store", url).output
