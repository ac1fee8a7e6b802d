"""`python -m lab`, as an engineer types it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from lab import frontier
from lab.__main__ import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    talk = ConversationBuilder().user("Mend src/loader.py, please.").work(8, "loader").say("src/loader.py is mended.")
    file = tmp_path / "made.jsonl"
    file.write_text(json.dumps({"id": "made-1", "messages": talk.messages}) + "\n")
    return file


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_it_prints_a_row_for_each_manager_at_each_budget_and_half(data: Path, tmp_path: Path) -> None:
    assert "| manager | edits | recall |" in replay(data, "--columns", "edits, recall").output
    out = tmp_path / "figures.json"
    names = ("context-simple", "context-simple:target_usage=0.4", "unlimited")
    several = [argument for name in names for argument in ("--context", name)]
    done = replay(data, *several, "--fraction", "0.3", "--fraction", "0.6", "--json", out)
    assert done.exit_code == 0, done.output
    for label in names:
        for size in ("30%", "60%"):
            assert f"| {label} | {size} |" in done.output
    figures = json.loads(out.read_text())
    assert [one["requests"] for one in figures["managers"]] == [figures["managers"][0]["requests"]] * 6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--context", "context-simpel"], "there is no context manager 'context-simpel'"),
        (["--context", 'context-simple:{"target_usage": 2}'], "target_usage"),
        (["--context", "no_such_module:make"], "cannot be loaded"),
        (["--context", "amplifier_context_simple:MODULE"], "is not callable"),
        (["--budget", "lots"], "'lots' is not a number of tokens such as 32000 or 32k"),
        (["--min-messages", "1000"], "no session is left to replay"),
        (["--columns", "recal"], "there is no column 'recal'; there are recall, "),
    ],
)
def test_mistakes_are_named(data: Path, arguments: list[str], expected: str) -> None:
    done = replay(data, *arguments)
    assert done.exit_code != 0
    assert expected in done.output
    assert "Traceback" not in done.output


def test_the_frontier_has_a_row_and_a_circle_for_each_point(data: Path, tmp_path: Path) -> None:
    svg = tmp_path / "frontier.svg"
    arguments = [str(data), "--min-messages", "0", "--part", "all", "--svg", str(svg)]
    done = CliRunner().invoke(frontier.main, arguments)
    assert done.exit_code == 0, done.output
    assert all(f"| {name} |" in done.output for name in frontier.POINTS)
    assert svg.read_text().count("<circle") == len(frontier.SHOWN) * len(frontier.POINTS)
