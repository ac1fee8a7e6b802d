"""What is counted right after a compaction."""

from __future__ import annotations

from dataclasses import replace

from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab.compactions import After, after, is_compacted, summary
from amplifier_context_testing.lab.request import Request

from .scripted import calls, chapter, result, says, scale, user

HISTORY = [
    user("fix it"),
    calls("Read", {"file": "a.py"}, "c1"),
    result("one two three", "c1"),
    user("and the other"),
    says("It is fixed"),
    calls("Read", {"file": "b.py"}, "c2"),  # open
]


def seen(view: list[Message], history: list[Message] = HISTORY, chapters: tuple[str, ...] = ()) -> After:
    weigh = scale()
    return after(history, Request.of(view, weigh), chapters, 100, weigh)


def test_a_view_below_nine_tenths_of_the_one_before_follows_a_compaction() -> None:
    weigh = scale()
    ten, nine, eight = (Request.of([user("word " * (words - 4))], weigh) for words in (10, 9, 8))
    assert not is_compacted(None, ten)
    assert not is_compacted(ten, nine)
    assert is_compacted(ten, eight)


def test_the_newest_rounds_of_the_agent_count_if_all_their_messages_are_as_they_were() -> None:
    assert seen(HISTORY).rounds == 2
    assert seen(HISTORY[4:]).rounds == 1
    assert seen([*HISTORY[:2], result("one …", "c1"), *HISTORY[3:]]).rounds == 1


def test_a_whole_round_before_one_that_is_not_does_not_count() -> None:
    assert seen([*HISTORY[:3], says("It is …")]).rounds == 0


def test_an_open_round_and_words_of_people_are_not_counted() -> None:
    assert seen(HISTORY[:4] + HISTORY[5:]).rounds == 0
    assert seen(HISTORY[1:3] + HISTORY[4:5]).rounds == 2
    assert seen([user("fix it")], [user("fix it")]).rounds == 0


def test_absent_content_and_empty_text_are_the_same_message() -> None:
    absent = {**HISTORY[1], "content": None}
    assert seen(HISTORY, [HISTORY[0], absent, *HISTORY[2:]]).rounds == 2


def test_shares_are_of_the_budget_the_view_and_the_chapters() -> None:
    weigh = scale()
    text = "m1 Read a.py; name_one name_two\nm2 nothing"  # 7 words, 2 of them names
    found = seen([chapter(text), *HISTORY[4:5]], chapters=(text,))
    assert found.used == (11 + 7) / 100
    assert found.whole == weigh.tokens(HISTORY[4]) / 100
    assert (found.chapters, found.names) == (7 / 18, 2 / 7)


def test_a_newest_round_above_a_third_of_the_budget_is_counted_apart() -> None:
    assert not seen(HISTORY, [says("word " * 29)]).large  # 33 tokens
    assert seen(HISTORY, [says("word " * 30)]).large


def test_several_compactions_give_medians_and_a_share_without_a_whole_round() -> None:
    one = After(rounds=2, whole=0.1, large=False, used=0.5, chapters=0.6, names=0.3)
    found = summary([replace(one, rounds=0), one, replace(one, rounds=4), replace(one, rounds=0, large=True)])
    assert (found["count"], found["large"]) == (4, 0.25)
    assert (found["rounds_p10"], found["rounds"], found["none"]) == (0, 2, 0.333333)
    assert summary([])["none"] is None
