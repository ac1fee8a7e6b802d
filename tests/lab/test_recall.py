"""What is looked for, names and sentences, whose they are, and what counts as found or kept."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.checks.texts import is_rule
from lab.course import near
from lab.recall import RecallProbe, References
from lab.sentences import Sentences

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


# -- sentences ---------------------------------------------------------------------------------------------------------

RULE = "Never touch the generated files."
WISH = "I would like to have a faster start."
FOUND = "The loader reads every file twice."
PLAN = "Next I look at how the cache is filled:"


@pytest.mark.parametrize(
    "sentence",
    [
        "Never do that", "do it always.", "this must not be", "don't touch it", "don’t touch it", "Do  not touch it",
        "only this one", "that instead", "make sure it runs", "it should be blue", "it shouldn't be", "Please wait",
        "请不要修改这个文件", "提交之前必须运行测试", "你应该先问我",
    ],
)  # fmt: skip
def test_rules_hold_a_word_that_rules_are_stated_with(sentence: str) -> None:
    assert is_rule(sentence)


def kept(messages: Messages, view: Messages, **more: Any) -> dict[str, tuple[int, int]]:
    """What a view keeps of each kind: found and sought."""
    weigh = scale()
    read = Sentences(messages, weigh, **more)
    found = read.before[-1].kept_in(read.in_view(Request.of(view, weigh)))
    return {name: (share["found"], share["sought"]) for name, share in found.as_json().items()}


SESSION = [
    user(f"{WISH} {RULE}"),
    calls("read", {"text": "Arguments are no sentences of the agent."}),
    result("Results are no sentences of the agent."),
    says(f"{FOUND} {PLAN}"),
]


def test_people_rules_and_the_agent_are_counted_apart() -> None:
    assert kept(SESSION, SESSION) == {"people": (2, 2), "rules": (1, 1), "agent": (2, 2)}
    assert kept(SESSION, SESSION[3:]) == {"people": (0, 2), "rules": (0, 1), "agent": (2, 2)}


def test_a_paste_states_no_rules() -> None:
    paste = [user(RULE + " x" * 2_000)]
    assert kept(paste, paste)["rules"] == (0, 0)
    assert kept(paste, paste)["people"] == (2, 2)
