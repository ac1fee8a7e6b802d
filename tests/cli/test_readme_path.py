"""A new user's path: the commands of the README, in their order, on a session of Claude Code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from tests.pages import between, read


def lines(rounds: int) -> list[dict[str, Any]]:
    """A session as Claude Code keeps it."""
    head = {"sessionId": "s", "timestamp": "2026-01-05T09:00:00.000Z"}
    made: list[dict[str, Any]] = [{**head, "type": "user", "message": {"role": "user", "content": "Fix the parser."}}]
    for number in range(rounds):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"src/p{number}.py"}}
        made.append({**head, "type": "assistant", "message": {"id": f"a{number}", "content": [call]}})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"def f{number}(): ..\n" * 60}
        made.append({**head, "type": "user", "message": {"role": "user", "content": [result]}})
    return [
        *made,
        {**head, "type": "assistant", "message": {"id": "z", "content": [{"type": "text", "text": "Done."}]}},
    ]


def test_every_command_of_the_readme_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = between(read("README.md"), "steer")
    export, *commands = [line for line in block.split("\n") if line and not line.startswith("```")]
    name, _, value = export.removeprefix("export ").partition("=")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    Path("session.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(320)))
    said: dict[str, str] = {}
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "amplifier-context"
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, f"{command}: {done.output}"
        said[" ".join(arguments)] = done.output
    assert "642 messages" in said["import session.jsonl"]
    assert "of 200,000 tokens" in said["context session"]
    dry, real = (re.findall(r"([\d,]+) → ([\d,]+)", text)[0] for key, text in said.items() if key.startswith("compact"))
    assert dry == real
    assert "chapter" in said["view session"]
    assert "its originals are shown again" in said["undo session --yes"]
    assert Path("report.html").stat().st_size > 10_000
    assert json.loads(Path("session.atif.json").read_text())["schema_version"] == "ATIF-v1.8"
