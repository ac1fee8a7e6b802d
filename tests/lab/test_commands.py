"""The commands of docs/reports/evaluation.md that make a table: each row of it is there."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from amplifier_context_testing import coding_session
from lab import frontier, search_quality

COMMANDS: dict[str, tuple[click.Command, list[str], list[str]]] = {
    "frontier": (
        frontier.main,
        ["DATA", "--min-messages", "0", "--part", "all", "--svg", "SVG"],
        [f"| {name} |" for name in frontier.POINTS],
    ),
    "search_quality": (search_quality.main, ["DATA"], ["ours"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_its_table(name: str, tmp_path: Path) -> None:
    file, svg = tmp_path / "made.jsonl", tmp_path / "made.svg"
    made = [{"id": f"made-{n}", "messages": list(coding_session(8, seed=n))} for n in range(4)]
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    command, arguments, expected = COMMANDS[name]
    named = {"DATA": str(file), "SVG": str(svg)}
    done = CliRunner().invoke(command, [named.get(one, one) for one in arguments])
    assert done.exit_code == 0, done.output
    for text in expected:
        assert text in done.output
