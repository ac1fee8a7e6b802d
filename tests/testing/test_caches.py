"""Bills of requests under each cache, by hand. A message of n words weighs n + 4; prices are 0.1, 1.25 and 1.0."""

import pytest

from amplifier_context_testing.caches import Bill, Cache
from amplifier_context_testing.caches.anthropic import Anthropic
from amplifier_context_testing.caches.openai import OpenAI
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.checks.message_shapes import Message
from tests.lab.scripted import chapter, scale
from tests.messages import result, says, user

SYSTEM: Message = {"role": "system", "content": "w " * 96}  # 100 tokens


def called(*ids: str, words: int = 16) -> Message:
    """An assistant message with calls: a call weighs two tokens, for its name and its empty arguments."""
    calls = [{"id": call_id, "tool": "t", "arguments": {}} for call_id in ids]
    return {"role": "assistant", "content": "w " * words, "tool_calls": calls}


# A coding session: their tokens are 100, 10, 22, 50, 24, 40, 30, 20, 10, 22, 60 and 10.
TWELVE: list[Message] = [
    SYSTEM,
    user("fix it " + "w " * 4),
    called("a"),
    result("a", "w " * 46),
    called("b", "c"),
    result("b", "w " * 36),
    result("c", "w " * 26),
    says("w " * 16),
    user("and now " + "w " * 4),
    called("d"),
    result("d", "w " * 56),
    says("w " * 6),
]
CHAPTER = chapter("what was done " + "w " * 23)  # 30 tokens
FOLDED = [SYSTEM, CHAPTER, *TWELVE[8:11]]
KEPT = [SYSTEM, TWELVE[1], CHAPTER, *TWELVE[8:11]]  # the first question stays before the chapter
BEFORE = [Bill(0, 100, 10), Bill(100, 82), Bill(182, 94), Bill(276, 30)]


@pytest.mark.parametrize(
    ("cache", "folded", "expected"),
    [
        # Breakpoints: system; primary at the newest message; secondary before the newest question, or two messages
        # before. One message alone has none; results of one round are one message. After the compaction only the
        # system block is as before; the next request has the primary of the one before in reach.
        (Anthropic(inferring=False), FOLDED, [*BEFORE, Bill(100, 122), Bill(222, 20)]),
        (Anthropic(inferring=False), KEPT, [*BEFORE, Bill(110, 122), Bill(232, 20)]),
        # With the first question it is the same conversation. The request before had seven messages on the wire and
        # shares the first: six count as unstable, and none of the five that follow may carry a breakpoint. The next
        # request pays for writing all after the question, which had a breakpoint in the second request.
        (Anthropic(inferring=True), KEPT, [*BEFORE, Bill(100, 0, 132), Bill(110, 142)]),
        # Written at the newest user or tool message, read where one of the latest 80 of these was written.
        (OpenAI(), FOLDED, [Bill(0, 110), Bill(110, 72), *BEFORE[2:], Bill(0, 222), Bill(222, 20)]),
    ],
)
def test_the_bills_of_a_session_that_is_folded_once(cache: Cache, folded: list[Message], expected: list[Bill]) -> None:
    grown = [TWELVE[:index] for index in (2, 4, 7, 9)]  # before each message of the assistant
    requests = [*grown, folded, [*folded, TWELVE[11], user("thanks " + "w " * 5)]]
    weigh = scale()
    found = [cache.bill(Request.of(view, weigh), 0.0) for view in requests]
    assert found == expected
