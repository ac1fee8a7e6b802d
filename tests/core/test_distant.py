"""Distant history: chapters around what must stay, before anything else is rendered."""

from __future__ import annotations

from typing import Any

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.compaction.distant import distant_end, fold_distant
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import Renderer
from tests.core.drafts import transcript
from tests.messages import Message, call, result, says, user


def folded(*messages: Message, pins: tuple[int, ...] = ()) -> list[Segment]:
    """All of these messages as distant history."""
    history = transcript(messages).snapshot()
    return fold_distant(history, 0, len(history), pins, Renderer(approx_token_counter, 100), approx_token_counter)


def spans(segments: list[Segment]) -> list[tuple[int, int, str]]:
    return [(segment.first, segment.last, segment.state) for segment in segments]


def work(start: int, stop: int) -> list[Message]:
    return [message for place in range(start, stop) for message in (call(f"c{place}"), result(f"c{place}", "x" * 400))]


def test_the_first_and_the_newest_words_of_a_person_stay_between_chapters() -> None:
    segments = folded(user("task"), *work(0, 5), user("between"), *work(5, 10), user("newest"), *work(10, 12))
    assert spans(segments) == [
        (1, 1, "kept"),
        (2, 22, "folded"),
        (23, 23, "kept"),
        (24, 27, "folded"),
    ]


def test_a_chapter_lists_what_people_wrote_and_counts_the_other_rounds() -> None:
    segments = folded(user("task"), *work(0, 5), user("never touch auth.py"), *work(5, 10), user("newest"))
    chapter = segments[1].chapter
    assert chapter is not None
    assert [entry.first for entry in chapter.entries] == [12]
    assert chapter.left_out == 10
    content = segments[1].shown[0].message["content"]
    assert "never touch auth.py" in content
    assert "; 10 rounds left out]" in content
    assert segments[1].original_tokens == sum(
        entry.tokens for entry in transcript([*work(0, 5), user("never touch auth.py"), *work(5, 10)]).snapshot()
    )


def test_pins_of_distant_history_stay_verbatim() -> None:
    segments = folded(user("task"), *work(0, 5), says("a finding"), *work(5, 8), user("newest"), pins=(12,))
    assert [segment.shown[0].message["content"] for segment in segments if segment.first == 12] == ["a finding"]


def test_a_result_that_came_after_a_providers_own_compaction_stays_with_its_call() -> None:
    carrier = user("What happened.", metadata={"anthropic:compaction": {"version": 1}})
    before = [user("task"), *work(0, 5), call("late"), call("soon"), result("soon")]
    segments = folded(*before, carrier, result("late"), *work(5, 8), user("newest"))
    kept = [segment for segment in segments if segment.state == "kept"]
    assert [(one.first, one.last) for one in kept] == [(1, 1), (12, 16), (15, 15), (23, 23)]
    without = folded(*before, result("late"), *work(5, 8), user("newest"))
    assert len([segment for segment in without if segment.state == "kept"]) == 2


def end_of(*messages: Message, budget: int, **limits: Any) -> int:
    renderer = Renderer(approx_token_counter, **{"output_limit": 100, **limits})
    return distant_end(transcript(messages).snapshot(), 0, budget, renderer)


def test_history_within_eight_budgets_of_what_a_view_shows_is_not_distant() -> None:
    giants = [message for place in range(9) for message in (call(f"c{place}"), result(f"c{place}", "word " * 9_000))]
    assert end_of(user("task"), *giants, budget=1_000) == 0  # nine outputs of 100 tokens, as they are shown
    assert end_of(user("task"), *giants, budget=1_000, output_limit=4_000) == 15


def test_an_output_that_may_become_a_table_says_nothing_of_the_distance() -> None:
    tables = [message for place in range(99) for message in (call(f"c{place}"), result(f"c{place}", "[" + "1," * 900))]
    assert end_of(user("task"), *tables, budget=600, tables=True) == 0
    assert end_of(user("task"), *tables, budget=600) > 0
