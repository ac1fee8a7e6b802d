"""Which sentences count, whose they are, and what counts as keeping one."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.checks.texts import is_rule
from lab.sentences import Sentences

from .scripted import calls, result, says, scale, user

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


def kept(messages: list[Message], view: list[Message], **more: Any) -> dict[str, tuple[int, int]]:
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
    assert kept(SESSION, SESSION) == {
        "people": (2, 2),
        "rules": (1, 1),
        "agent": (2, 2),
    }
    assert kept(SESSION, SESSION[3:]) == {
        "people": (0, 2),
        "rules": (0, 1),
        "agent": (2, 2),
    }


def test_a_paste_states_no_rules() -> None:
    paste = [user(RULE + " x" * 2_000)]
    assert kept(paste, paste)["rules"] == (0, 0)
    assert kept(paste, paste)["people"] == (2, 2)
