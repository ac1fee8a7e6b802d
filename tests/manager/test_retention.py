"""Texts that a loop asks to retain verbatim in one request, and requests that must fit one budget."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amplifier_core.llm_errors import ContextLengthError

from amplifier_context_testing import check_request
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, size, work

BUDGET = 4_000


def steered(content: str) -> Message:
    return {"role": "user", "content": content, "metadata": {"ephemeral": True, "persisted": True}}


async def test_a_retained_text_stays_verbatim_in_the_view() -> None:
    manager = await feed(new_manager(), [*work(5), steered("STEER LEFT"), *rounds(80, start=100)])
    assert "STEER LEFT" not in [m["content"] for m in await ask(manager, BUDGET)]
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert check_request(view) == []
    assert size(view) <= BUDGET
    assert "STEER LEFT" in [m["content"] for m in view]


async def test_of_equal_texts_the_newest_stays() -> None:
    newest = steered("STEER LEFT") | {"name": "newest"}
    manager = await feed(new_manager(), [*work(5), steered("STEER LEFT"), *rounds(40, start=100), newest])
    await feed(manager, rounds(60, start=200))
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert [m.get("name") for m in view if m["content"] == "STEER LEFT"] == ["newest"]


async def test_a_text_of_an_assistant_or_a_tool_is_not_meant() -> None:
    manager = await feed(new_manager(), [*work(1), {"role": "assistant", "content": "written by the model"}])
    with pytest.raises(ValueError, match="not in the history"):
        await manager.request_retention(retain_contents=["written by the model"])


async def test_texts_that_cannot_fit_are_a_context_length_error() -> None:
    manager = await feed(new_manager(), [*work(5), steered("word " * 5_000)])
    with pytest.raises(ContextLengthError):
        await manager.request_retention(retain_contents=["word " * 5_000], token_budget=BUDGET)
    await ask(manager, 20_000)


async def test_hard_fit_by_the_providers_own_count() -> None:
    """A provider that was measured to count twice as much must be sent half."""
    manager = await feed(new_manager(), [*work(60), steered("STEER LEFT")])
    provider = SimpleNamespace(name="p")
    manager.meter.correction(("p", "")).ratio = 2.0
    view = await manager.request_retention(
        retain_contents=["STEER LEFT"], provider=provider, token_budget=BUDGET, hard_fit=True
    )
    assert 2 * size(view) <= BUDGET
