"""Bills of requests under each cache, by hand. A message of n words weighs n + 4; prices are 0.1, 1.25 and 1.0."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_testing.caches import Bill, Cache, caches
from amplifier_context_testing.caches.anthropic import Anthropic
from amplifier_context_testing.caches.openai import OpenAI
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.checks.message_shapes import Message
from tests.lab.scripted import chapter, result, says, scale, user

SYSTEM: Message = {"role": "system", "content": "w " * 96}  # 100 tokens


def called(*ids: str, words: int = 16) -> Message:
    """An assistant message with calls: a call weighs two tokens, for its name and its empty arguments."""
    calls = [{"id": call_id, "tool": "t", "arguments": {}} for call_id in ids]
    return {"role": "assistant", "content": "w " * words, "tool_calls": calls}


# Twelve messages of a coding session: a system prompt, a question, three rounds of calls, an answer, a second question
# and a round for it. Their weights are in WEIGHTS; where they come from is tested below.
TWELVE: list[Message] = [
    SYSTEM,
    user("fix it " + "w " * 4),
    called("a"),
    result("w " * 46, "a"),
    called("b", "c"),
    result("w " * 36, "b"),
    result("w " * 26, "c"),
    says("w " * 16),
    user("and now " + "w " * 4),
    called("d"),
    result("w " * 56, "d"),
    says("w " * 6),
]
WEIGHTS = [100, 10, 22, 50, 24, 40, 30, 20, 10, 22, 60, 10]
ASKED = [2, 4, 7, 9, 11]  # a view is asked for before each message of the assistant
CHAPTER = chapter("what was done " + "w " * 23)  # 30 tokens


def views() -> list[list[Message]]:
    """The requests of that session; before the last one all up to the second question is folded."""
    grown = [TWELVE[:index] for index in ASKED[:4]]
    folded = [SYSTEM, CHAPTER, *TWELVE[8:11]]
    return [*grown, folded, [*folded, TWELVE[11], user("thanks " + "w " * 5)]]


def bills(cache: Cache, requests: Sequence[list[Message]], at: Sequence[float] | None = None) -> list[Bill]:
    weigh = scale()
    times = at or [0.0] * len(requests)
    return [cache.bill(Request.of(view, weigh), now) for view, now in zip(requests, times, strict=True)]


def test_anthropic_without_inference_reads_what_its_breakpoints_wrote() -> None:
    # Breakpoints: system; primary at the newest message; secondary before the newest question, or two messages before.
    #  1  [question]                                      one message alone has no breakpoint: its 10 tokens are fresh
    #  2  ... [calls][result]                             primary at the result
    #  3  ... [calls][result][calls][results]             results of one round are one message; secondary at the first
    #  4  ... [answer][question 2]                        secondary at the answer, primary at the question
    #  5  [chapter][question 2][calls][result]            only the system block is as before; secondary at the chapter
    #  6  [chapter] ... [answer][thanks]                  the primary of before is in reach
    found = bills(Anthropic(inferring=False), views())
    assert found == [
        Bill(0, 100, 10),
        Bill(100, 82),
        Bill(182, 94),
        Bill(276, 30),
        Bill(100, 122),
        Bill(222, 20),
    ]


def test_anthropic_as_shipped_writes_nothing_after_a_compaction() -> None:
    # The first question is kept before the chapter, so it is the same conversation. The request before had seven
    # messages on the wire and shares the first: six count as unstable, and of the folded view's five none may carry a
    # breakpoint. All but the system block is fresh. The next request pays for writing it: all after the question,
    # which had a breakpoint in the second request and is six blocks away.
    kept = [[*view[:1], TWELVE[1], *view[1:]] if CHAPTER in view else view for view in views()]
    found = bills(Anthropic(inferring=True), kept)
    assert found[:4] == [Bill(0, 100, 10), Bill(100, 82), Bill(182, 94), Bill(276, 30)]
    assert found[4:] == [Bill(100, 0, 132), Bill(110, 142)]
    declared = bills(Anthropic(inferring=False), kept)
    assert declared[4:] == [Bill(110, 122), Bill(232, 20)]


def test_openai_reads_exactly_where_it_wrote() -> None:
    # It writes at the newest user or tool message, and reads where one of the latest 80 of these was written.
    found = bills(OpenAI(), views())
    assert found == [
        Bill(0, 110),
        Bill(110, 72),
        Bill(182, 94),
        Bill(276, 30),
        Bill(0, 222),  # the system prompt ends with no breakpoint
        Bill(222, 20),
    ]


ROLES: list[Message] = [
    {"role": "system", "content": "s"},
    user("q"),
    says("a"),
    called("a", "b", words=1),
    result("r", "a"),
    result("r", "b"),
    says(""),
]
VIEWS = st.lists(st.lists(st.integers(0, len(ROLES) - 1), min_size=1, max_size=12), min_size=1, max_size=6)


@given(views=VIEWS, pauses=st.lists(st.sampled_from([0.0, 10.0, 400.0, 2_000.0]), min_size=6, max_size=6))
def test_no_cache_reads_more_than_was_written_and_every_token_is_billed_once(
    views: list[list[int]], pauses: list[float]
) -> None:
    weigh = scale()
    at = [sum(pauses[: place + 1]) for place in range(len(views))]
    requests = [Request.of([ROLES[number] for number in view], weigh) for view in views]
    found = {name: [c.bill(r, t) for r, t in zip(requests, at, strict=True)] for name, c in caches().items()}
    for series in found.values():
        written = 0
        for request, bill in zip(requests, series, strict=True):
            assert min(bill.read, bill.written, bill.fresh) >= 0
            assert bill.tokens == request.offsets[-1]
            assert bill.read <= written
            written += bill.written
