"""Managers by name, baselines, and peers that are not there."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amplifier_context_testing import ListContext, check_request
from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab import Unavailable, manager
from amplifier_context_testing.lab.baselines import Newest, NewestCheckpointed
from amplifier_context_testing.lab.managers import Opened

from .scripted import calls, result, says, scale, user


def listing(config: dict[str, Any]) -> ListContext:
    """A factory, as a dotted path names one."""
    made = ListContext()
    made.messages = [user(str(config.get("first", "")))]
    return made


async def opened(spec: str, **more: Any) -> Opened:
    return await manager(spec, **more).open(scale(), 1_000)


@pytest.mark.parametrize(
    "spec", ["context-simple:target_usage=0.4,strict=true", 'context-simple:{"target_usage": 0.4, "strict": true}']
)
async def test_a_module_is_mounted_with_its_config(spec: str) -> None:
    context: Any = (await opened(spec)).context
    assert context.config.target_usage == 0.4
    assert context.config.strict is True


async def test_a_dotted_path_is_called_with_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lab_made", sys.modules[__name__])
    context: Any = (await opened("lab_made:listing:first=hello")).context
    assert context.messages == [user("hello")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("context-simpel", "there is no context manager 'context-simpel'.*context-simple.*newest"),
        ("no_such_module:make", "cannot be loaded"),
        ("amplifier_context_simple:MODULE", "is not callable"),
    ],
)
def test_what_cannot_be_had_says_so(spec: str, expected: str) -> None:
    with pytest.raises(Unavailable, match=expected):
        manager(spec)


async def shown(context: Newest, messages: list[Message], budget: int) -> list[Message]:
    for message in messages:
        await context.add_message(message)
    view = await context.get_messages_for_request(token_budget=budget)
    assert check_request(view) == []
    return view


LONG = [
    {"role": "system", "content": "be good"},  # 6 tokens
    user("first thing"),  # 6
    says("yes"),  # 5
    user("second thing"),  # 6
    calls("read", {"p": "a"}, "c1"),  # 6
    result("a b c", "c1"),  # 7
    calls("read", {"p": "b"}, "c2"),  # 6
    result("d e f", "c2"),  # 7
]


async def test_the_newest_rounds_come_with_the_newest_human_message() -> None:
    assert await shown(Newest(scale()), LONG, 51) == LONG
    assert await shown(Newest(scale()), LONG, 45) == [LONG[0], *LONG[3:]]
    assert await shown(Newest(scale()), LONG, 30) == [LONG[0], LONG[3], *LONG[6:]]
    assert await shown(Newest(scale()), LONG, 1) == [LONG[0], LONG[3], *LONG[6:]]


async def test_a_checkpoint_cuts_to_half_and_then_only_grows() -> None:
    context = NewestCheckpointed(scale())
    assert await shown(context, LONG, 48) == [LONG[0], LONG[3], *LONG[6:]]
    assert await shown(context, [says("done")], 48) == [LONG[0], LONG[3], *LONG[6:], says("done")]
