"""The demo with a context that asks a model: a script answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Run, lines_with

pytestmark = pytest.mark.kernel


def test_a_context_that_asks_a_model_runs_and_says_that_there_is_no_model(run: Run, clone: Path) -> None:
    result = run("--context", "context-summary", "--budget", 4_000)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines_with(result, "There is no model")
    assert lines_with(result, "sentences that a script extracts")
    assert lines_with(result, "63, all valid by the rules of OpenAI, Anthropic and the kernel")
    ready = lines_with(result, "a summary of m")
    assert len(ready) >= 2
    (summaries,) = lines_with(result, "  summaries  ")
    (place,) = (number for number, line in enumerate(lines) if "the newest chapter begins with the words" in line)
    assert re.match(r"\s+(The person|The work|Found out|Files|Values)", lines[place + 1])
    assert int(re.search(r"(\d+) calls", summaries)[1]) >= len(ready)  # type: ignore[index]
