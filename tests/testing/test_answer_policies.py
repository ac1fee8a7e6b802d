"""Answers and where they come from."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.replay.answer_policies import Answer, next_answer, policy_named


def make_echo(config: dict[str, Any]) -> Any:
    async def echo(request: Any) -> str:
        return f"{config['greeting']} {request}"

    return echo


@pytest.mark.parametrize("shape", ["openai", "kernel", "anthropic"])
def test_a_recorded_message_is_read_in_any_spelling(shape: Any) -> None:
    talk = ConversationBuilder(shape)
    talk.call(("read", {"path": "a"}), ("read", {"path": "b"}), text="Both.")
    answer = Answer.of(talk.messages[0])
    assert answer.text == "Both."
    assert [(call.id, call.arguments["path"]) for call in answer.calls] == [("call_0001", "a"), ("call_0002", "b")]


@pytest.mark.parametrize(
    "value", [1, ["x"], {"say": "x"}, {"calls": ["read"]}, {"calls": [{"tool": "r", "arguments": [1]}]}]
)
def test_what_is_no_answer_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"answer|call"):
        Answer.of(value)


async def test_a_policy_is_made_by_the_factory_a_path_names(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    module = ModuleType("made_for_this_test")
    vars(module)["make_echo"] = make_echo
    monkeypatch.setitem(sys.modules, "made_for_this_test", module)
    policy = policy_named("made_for_this_test:make_echo", {"greeting": "Ahoy"})
    answer = await next_answer(policy, "there")
    assert answer is not None
    assert answer.text == "Ahoy there"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nothing", "not of the form"),
        ("no_such_module:x", "cannot be loaded"),
        ("json:no_such_name", "cannot be loaded"),
        ("json:__name__", "is no factory"),
        ("builtins:dict", "is no factory"),
    ],
)
def test_a_path_that_leads_nowhere_is_explained(path: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        policy_named(path, {})
