"""Which plain words are looked for, and when they are found."""

from __future__ import annotations

from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab.course import near
from amplifier_context_testing.lab.request import Request
from amplifier_context_testing.lab.words import Words, stems

from .scripted import calls, chapter, result, says, scale, user


def test_a_word_is_five_letters_or_more_and_no_part_of_a_name() -> None:
    assert stems("Loader, loaders and LOADER; load") == {"loader", "loaders"}
    assert stems("src/loader loader.py the_loader loader_two my-loader #loader loader42 loaderTwo") == set()
    assert stems("The loader. Then `loader` (loader)") == {"loader"}


def wanted(messages: list[Message], budget: int = 1_000) -> dict[int, tuple[set[str], set[str]]]:
    """The words looked for and the far ones, by message."""
    weigh = scale()
    words = Words(messages, weigh)
    before = [sum(map(weigh.tokens, messages[:index])) for index in range(len(messages) + 1)]
    found: dict[int, tuple[set[str], set[str]]] = {}
    for index, one in words.wanted(near(before, budget)).items():
        names = {word: 1 << place for word, place in words.bits.items()}
        found[index] = (
            {word for word, bit in names.items() if one.words & bit},
            {word for word, bit in names.items() if one.far & bit},
        )
    return found


def test_words_of_the_next_answer_that_were_used_before_are_looked_for() -> None:
    messages = [
        user("check the loader"),
        calls("read", {"text": "parser"}),
        result("broken"),
        says("Loader broken now"),
    ]
    assert wanted(messages)[3] == ({"loader", "broken"}, set())


def test_far_words_were_last_used_outside_the_newest_quarter_of_the_budget() -> None:
    messages = [user("ancient"), user("recent"), user("a b c"), says("ancient recent")]  # 5, 5, 7 tokens
    assert wanted(messages, budget=48)[3] == ({"ancient", "recent"}, {"ancient"})  # the newest 12
    assert wanted(messages, budget=52)[3] == ({"ancient", "recent"}, set())  # the newest 13 reach into the first


def test_a_view_holds_a_word_in_any_of_its_messages_and_in_any_form() -> None:
    weigh = scale()
    words = Words([user("compacting loader"), says("compactions loader parser")], weigh)
    view = [chapter("compacted"), user("path/loader")]
    assert words.in_view(Request.of(view, weigh)) == 1 << words.bits["compact"]
