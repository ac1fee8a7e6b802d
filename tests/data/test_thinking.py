"""Sessions with thinking, replayed under each vendor's rule: no request shows thinking that its provider would reject.

A long session made for this always, each of whose answers thinks; the recorded transcripts with signed thinking where
they are at hand (`tests/conftest.py`).
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, approx_token_counter, count_tokens, load_config
from amplifier_context_core.messages.parsing import is_signed
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import Transcript, check_request, coding_session, read_transcripts, replay
from amplifier_context_testing.checks.thinking_checker import (
    BoundThinkingChecker,
    FreeThinkingChecker,
    RequiredThinkingChecker,
    seals_of,
)
from tests.conftest import DATA
from tests.data.scenarios import thoughtful

Message = dict[str, Any]

RULES = {
    "bound": ("anthropic", "claude-opus-5-5", BoundThinkingChecker),
    "required": ("anthropic", "claude-sonnet-4-5", RequiredThinkingChecker),
    "free": ("openai", "gpt-5.6", FreeThinkingChecker),
}


def sessions() -> Iterator[tuple[str, Transcript]]:
    """Sessions whose answers have signed thinking, by name."""
    yield "made", Transcript("coding", "made", thoughtful(coding_session(150, 7)))
    for file in sorted(DATA.glob("*.jsonl.gz")):
        for transcript in read_transcripts(file):
            if any(is_signed(message) for message in transcript.messages if message.get("role") == "assistant"):
                yield f"{file.name.split('.')[0]}/{transcript.id}", transcript


async def judged(transcript: Transcript, rule: str, share: float) -> tuple[list[str], int]:
    """What is wrong with the requests of a session in a window of this share, and how many of them showed thinking."""
    shared_cache.clear()
    provider, model, make_checker = RULES[rule]
    checker, wrong, kept = make_checker(), list[str](), list[bool]()
    budget = int(count_tokens(list(transcript.messages), approx_token_counter) * share)
    session = ContextManager(load_config({"token_counter": "heuristic", "max_tokens": budget}), plugins=Plugins())

    def judge(index: int, view: list[Message]) -> None:
        faults = (*check_request(view), *checker.check(view))
        wrong.extend(f"request before message {index}: {fault}" for fault in faults)
        kept.append(any(seals_of(message) for message in view))
        checker.answered(view, dict(transcript.messages[index]))

    asks = SimpleNamespace(name=provider, default_model=model)
    await replay(transcript, session, judge, token_budget=budget, provider=asks)
    return wrong, sum(kept)


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("rule", RULES)
async def test_no_request_of_a_session_shows_thinking_that_its_provider_would_reject(rule: str, share: float) -> None:
    for name, transcript in sessions():
        wrong, kept = await judged(transcript, rule, share)
        assert not wrong, f"{name}: {len(wrong)} broken: {wrong[:3]}"
        assert kept, f"{name}: no request showed any thinking"
