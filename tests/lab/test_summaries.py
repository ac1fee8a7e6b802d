"""The lab with a manager that asks a model: late summaries, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing import coding_session
from lab import paced, summaries
from lab.course import Size
from lab.managers import manager
from lab.run import measure
from lab.sessions import Session

pytestmark = pytest.mark.kernel


def messages(count: int) -> list[dict[str, Any]]:
    rule = {"role": "user", "content": "Rename the module. Never touch the generated files in build/out."}
    return [rule, *list(coding_session(count, seed=5))[1:]]


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
