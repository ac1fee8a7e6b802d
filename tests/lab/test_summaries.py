"""The lab with a manager that asks a model: late summaries, recorded summaries, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import coding_session
from amplifier_context_testing.lab import boundaries, paced, summaries
from amplifier_context_testing.lab.course import Size
from amplifier_context_testing.lab.managers import manager
from amplifier_context_testing.lab.run import measure
from amplifier_context_testing.lab.sessions import Session
from amplifier_context_testing.lab.token_scale import TokenScale

pytestmark = pytest.mark.kernel

RECORDED = """This session is being continued from a previous conversation.

Summary:
1. Primary Request and Intent:
   - The person wants the module renamed.

2. Key Technical Concepts:
   - Branches are split lazily.

3. Pending Tasks:
   - Write the changelog of the rename.
"""


def messages(count: int) -> list[dict[str, Any]]:
    rule = {"role": "user", "content": "Rename the module. Never touch the generated files in build/out."}
    return [rule, *list(coding_session(count, seed=5))[1:]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A recording with one boundary, as Claude Code's are."""
    history = messages(160)
    index = next(i for i in range(100, 160) if history[i]["role"] == "assistant")
    history.insert(index, {"role": "user", "content": RECORDED})
    meta = {"compact_boundaries": [{"index": index}], "compact_summary_indices": [index]}
    path = tmp_path / "recorded.jsonl"
    path.write_text(json.dumps({"id": "one", "messages": history, "meta": meta}) + "\n")
    return path


async def test_a_recorded_summary_is_the_answer_at_its_boundary_and_is_in_the_chapter(file: Path) -> None:
    recorded = boundaries.recorded_sessions([file])
    outcome = await boundaries.judged(
        recorded, "context-summary", boundaries.as_recorded, TokenScale(), boundaries.WHOLE
    )
    assert (outcome.boundaries, outcome.written, outcome.waits) == (1, 1, 0)
    assert outcome.calls == [1]
    assert outcome.kept.rules.value == 1.0
    assert 5 < outcome.requests <= boundaries.JUDGED
    assert (outcome.names.value or 0.0) > 0.5


async def replayed(**config: Any) -> tuple[Any, summaries.Spent]:
    spent = summaries.Spent()
    asking = summaries.asking("summary", 1.0, spent, {"summary_spend": 100.0, **config})
    session = Session("one", "made", messages(120))
    report = await measure([session], [manager("context-simple"), asking], Size(budget=4_000))
    return report, spent


async def test_the_lab_counts_calls_tokens_and_money_and_no_request_waits() -> None:
    report, spent = await replayed()
    digest, summary = (row.figures for row in report.rows)
    assert summary.faulty == digest.faulty == 0
    assert summary.over == digest.over
    assert len(spent.calls) >= 3
    assert sum(spent.calls) >= 3
    assert spent.waits == 0
    assert spent.failures == []
    assert 0 <= spent.unused < 0.2 * spent.counted
    assert spent.money == spent.input + paced.OUTPUT * spent.output > 0
    assert summary.last.rules.value == 1.0
