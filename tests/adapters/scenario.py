"""One conversation for every adapter: an agent reads pages in two turns, far more than fit into its budget."""

import json
from collections.abc import Sequence
from typing import Any

from amplifier_context_core import ContextManager, count_tokens, load_config
from amplifier_context_testing.checks.request_checker import check_request

BUDGET = 4_000  # tokens
PAGES = 20  # read in each turn
TASK = "Read all pages of the report, and say which of them names a port."
ANSWER = "Page 7 names port 8443."
NEXT_TASK = "Now read them once more, and look for a host."

Message = dict[str, Any]


def context(**config: Any) -> ContextManager:
    return ContextManager(load_config({"max_tokens": BUDGET, **config}))


def page(number: int) -> str:
    """What the tool returns: a tenth of the budget, and once twice of it."""
    return f"page {number}\n" + f"Paragraph {number} of the report has words and no facts.\n" * (
        600 if number == 9 else 30
    )


def call(turn: int, number: int) -> tuple[str, dict[str, int]]:
    return f"call_{turn}_{number}", {"number": number}


def arguments(number: int) -> str:
    return json.dumps({"number": number})


def judge(requests: Sequence[Sequence[Message]]) -> None:
    """Check what a model was sent in both turns, in OpenAI's shape and without the system prompt."""
    assert len(requests) == 2 * (PAGES + 1)
    breaks = 0
    for before, request in zip([[], *requests], requests, strict=False):
        broken = check_request(request)
        assert not broken, broken
        assert count_tokens(request) <= BUDGET
        breaks += list(before) != list(request[: len(before)])
    assert 0 < breaks < len(requests) / 4, "a prefix breaks with a compaction only"
    last = requests[-1]
    assert NEXT_TASK in [message["content"] for message in last]
    assert (last[-1]["tool_call_id"], last[-1]["content"]) == (call(2, PAGES - 1)[0], page(PAGES - 1))
    text = json.dumps(last)
    assert ANSWER in text, "an earlier answer is in a chapter"
    assert page(3)[:200] not in text
