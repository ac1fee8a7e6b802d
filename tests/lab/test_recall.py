"""What is looked for, and what counts as found."""

from __future__ import annotations

from typing import Any

from amplifier_context_testing.caches.request import Request
from lab.course import near
from lab.recall import RecallProbe, References

from .scripted import calls, chapter, result, says, scale, user

Messages = list[dict[str, Any]]


def targets(messages: Messages, budget: int = 1_000) -> dict[int, dict[str, bool]]:
    """Names to look for and whether they are far, by message."""
    weigh = scale()
    before = [sum(map(weigh.tokens, messages[:index])) for index in range(len(messages) + 1)]
    found = References(messages).targets(near(before, budget))
    return {index: {target.name: target.far for target in some} for index, some in found.items()}


def test_only_what_was_in_the_history_is_looked_for() -> None:
    messages = [user("fix main.py"), calls("read", {"p": "main.py"}), result("new_name"), says("new_name, own_name")]
    found = targets(messages)
    assert found[1] == {"main.py": False}
    assert found[3] == {"new_name": False}


def test_far_is_what_lies_outside_the_newest_quarter_of_the_budget() -> None:
    messages = [user("old_name"), user("near_name"), user("a b c"), says("old_name near_name")]  # 5, 5, 7 tokens
    assert targets(messages, budget=48)[3] == {"old_name": True, "near_name": False}  # the newest 12
    assert targets(messages, budget=52)[3] == {"old_name": False, "near_name": False}  # the newest 13 reach into it
    assert targets(messages, budget=28)[3] == {"old_name": True, "near_name": True}


def seen(history: Messages, view: Messages) -> Any:
    probe = RecallProbe(scale())
    for message in history:
        probe.learn(message)
    return probe.sight(Request.of(view, probe.scale))


HISTORY: Messages = [
    user("fix the bug"),
    calls("read_file", {"path": "src/app.py"}),
    result("def load_all(): ..."),
    says("There is helper_one."),
]


def origins(name: str) -> frozenset[str]:
    messages = [*HISTORY, says(name)]
    found = References(messages).targets([0] * len(messages))[len(HISTORY)]
    return next(target.origins for target in found if target.name == name)


def test_in_a_message_as_it_was_everything_is_located() -> None:
    sight = seen(HISTORY, HISTORY)
    assert sight.chapter_tokens == 0
    assert sight.holds("load_all")
    assert sight.locates("load_all", origins("load_all"))


def test_in_a_chapter_a_line_must_say_where_a_name_came_from() -> None:
    good = seen(HISTORY, [chapter("m1 read_file src/app.py -> 1 line; load_all\nm3 assistant: There is helper_one.")])
    assert good.locates("load_all", origins("load_all"))
    assert good.locates("helper_one", origins("helper_one"))
    bad = seen(HISTORY, [chapter("read_file src/app.py\nload_all, helper_one")])
    assert bad.holds("load_all")
    assert not bad.locates("load_all", origins("load_all"))


def test_a_bag_of_words_scores_nothing() -> None:
    words = ["load_all", "helper_one", *[f"word_{n}" for n in range(900)], "read_file", "assistant"]
    for bag in ("\n".join(words), " ".join(words)):
        sight = seen(HISTORY, [chapter(bag)])
        assert sight.holds("load_all")
        assert not sight.locates("load_all", origins("load_all"))
        assert not sight.locates("helper_one", origins("helper_one"))
