"""Whole sessions through the kernel: an output of 200,000 tokens in a window of 16,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_context_core.view import shared_cache
from tests.places import BACKENDS, Place, parameters
from tests.recall.agent import NEEDLE, WINDOW, ask

pytestmark = pytest.mark.kernel


@pytest.fixture(params=parameters("memory", "jsonl", "sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


async def test_an_agent_finds_a_line_in_an_output_that_its_window_cannot_hold(place: Place) -> None:
    """Each request is held against the rules of providers and against the window by the provider itself."""
    name = place.session_id("recall")
    kept = {"module": "context-persistent", "config": {"store": place.url(), "durability": "none"}}
    context = {"module": "context-simple"} if place.backend == "memory" else kept
    first = await ask(context, name, "Which order was refused, and where?", resumed=False)
    assert first["answer"] == f"I found: {NEEDLE}"
    assert len(first["sizes"]) == 4  # the output, a search, a page, the answer
    assert max(first["sizes"]) < WINDOW * 4 * 0.2  # characters: the output was in none of the requests
    assert first["violations"] == []
    assert first["lacking"] == []
    if place.backend == "memory":
        return
    shared_cache.clear()  # as in another process
    second = await ask(context, name, "And which order was refused, again?", resumed=True)
    assert second["answer"] == f"I found: {NEEDLE}"
    assert len(second["sizes"]) == 3  # it is not fetched again
    assert max(second["sizes"]) < WINDOW * 4 * 0.2
    assert second["violations"] == []
