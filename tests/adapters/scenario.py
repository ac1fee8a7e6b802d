"""One conversation for every adapter: an agent reads pages in two turns, far more than fit into its budget.

The `Reader` of each test is a model of its library that plays the `Script`.
"""

import json
from collections.abc import Iterable, Sequence
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


class Script:
    """Reads a page with each request, and answers at the end of each turn."""

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []

    def call(self, request: Iterable[Any]) -> tuple[str, dict[str, int]] | None:
        """Note a request. Return id and arguments of the call that it is answered by, None for the answer."""
        turn, number = divmod(len(self.requests), PAGES + 1)
        self.requests.append(list(request))
        return (f"call_{turn + 1}_{number}", {"number": number}) if number < PAGES else None


def asks(id: str, name: str, arguments: str) -> Message:
    """A message with a call, in OpenAI's shape."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]}


def has_each_page(messages: Sequence[Message]) -> bool:
    """True if each page is there as it was read, twice."""
    return [one["content"] for one in messages if one["role"] == "tool"] == [*map(page, range(PAGES))] * 2


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
    assert (last[-1]["tool_call_id"], last[-1]["content"]) == (f"call_2_{PAGES - 1}", page(PAGES - 1))
    text = json.dumps(last)
    assert ANSWER in text, "an earlier answer is in a chapter"
    assert page(3)[:200] not in text
