"""Which Reads of a recording are re-reads."""

from __future__ import annotations

from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab.re_reads import SOON, Reads, ReReads, file_of
from amplifier_context_testing.lab.request import Request

from .scripted import calls, chapter, result, says, scale, user

LINES = [f"line {number} of the file, and some more" for number in range(4)]
TEXT = "\n".join(LINES)


def session(*, between: int = 0, again: str = "a.py") -> list[Message]:
    """A Read, some answers, and another Read."""
    return [
        user("look"),
        calls("Read", {"file_path": "a.py"}, "c1"),
        result(TEXT, "c1"),
        *[says(f"thought {number}") for number in range(between + 1)],
        calls("Read", {"file_path": again}, "c2"),
    ]


def re_reads(messages: list[Message], views: list[list[Message]]) -> int:
    """The re-reads, with a view for each message of the agent after the first Read."""
    weigh = scale()
    counted = ReReads(Reads(messages, weigh))
    requests = [index for index, message in enumerate(messages) if message["role"] == "assistant"][1:]
    return sum(counted.take(index, Request.of(view, weigh)) for index, view in zip(requests, views, strict=True))


WHOLE = [result(TEXT, "c1")]
HALF = [chapter("\n".join(LINES[:2]))]
LESS = [chapter(LINES[0])]


def test_a_file_that_is_read_again_after_the_view_lost_it_is_a_re_read() -> None:
    assert re_reads(session(), [WHOLE, LESS]) == 1
    assert re_reads(session(), [LESS, LESS]) == 1
    assert re_reads(session(again="b.py"), [WHOLE, LESS]) == 0


def test_a_file_of_which_the_view_holds_half_is_not_lost() -> None:
    assert re_reads(session(), [WHOLE, HALF]) == 0
    assert re_reads(session(), [LESS, HALF]) == 0


def test_only_the_requests_soon_after_the_loss_count() -> None:
    early = session(between=SOON - 2)
    assert re_reads(early, [LESS] * SOON) == 1
    late = session(between=SOON - 1)
    assert re_reads(late, [LESS] * (SOON + 1)) == 0
    assert re_reads(late, [WHOLE, *[LESS] * SOON]) == 1


def test_the_newest_read_of_a_file_is_the_one_that_counts() -> None:
    newer = "\n".join(f"another line {number} of the file" for number in range(4))
    messages = [
        *session(),
        result(newer, "c2"),
        says("so"),
        calls("Read", {"file_path": "a.py"}, "c3"),
    ]
    assert re_reads(messages, [WHOLE, WHOLE, [chapter(newer)], [chapter(newer)]]) == 0
    assert re_reads(messages, [WHOLE, WHOLE, WHOLE, WHOLE]) == 1


def test_reading_tools_are_known_by_name_and_argument() -> None:
    assert file_of("Read", {"file_path": "a"}) == "a"
    assert file_of("read_file", {"path": "a"}) == "a"
    assert file_of("Grep", {"path": "a"}) is None
    assert file_of("Read", "a") is None
