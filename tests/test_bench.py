"""The bench compares requests of two commits, each measured with the core of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_context_testing import coding_session
from bench.against import ROOT, measure_against, measure_core

BUDGET = 8_000


def session(folder: Path) -> Path:
    messages = list(coding_session(300, 0, shape="kernel"))
    path = folder / "messages.json"
    path.write_text(json.dumps({"history": messages[:20], "rounds": [messages[20:160], messages[160:]]}))
    return path


def test_a_commit_that_git_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no-such-commit"):
        measure_against("no-such-commit", BUDGET, print)


def test_requests_that_compact_are_measured_apart(tmp_path: Path) -> None:
    figures = measure_core(str(ROOT), session(tmp_path), BUDGET)
    assert (figures["requests"], figures["compactions"]) == (2, 2)
    assert figures["compacting_mean"] > 0
