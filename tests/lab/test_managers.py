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
from amplifier_context_testing.lab.peers import PEERS

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


async def test_each_session_has_a_manager_of_its_own() -> None:
    one = manager("context-simple")
    first, second = await one.open(scale(), 100), await one.open(scale(), 100)
    assert first.context is not second.context
    await first.close()
    await second.close()


async def test_a_dotted_path_is_called_with_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lab_made", sys.modules[__name__])
    context: Any = (await opened("lab_made:listing:first=hello")).context
    assert context.messages == [user("hello")]


async def test_a_dotted_path_to_a_mount_is_mounted() -> None:
    context: Any = (await opened("amplifier_context_simple:mount")).context
    assert type(context).__name__ == "ContextManager"


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


@pytest.mark.parametrize("spec", ["context-simple:{nope", "context-simple:target_usage=1,strict", "newest:a=1"])
def test_a_config_that_cannot_be_read_is_an_error(spec: str) -> None:
    with pytest.raises(ValueError, match=r"key=value|not JSON|no config"):
        manager(spec)


def test_a_peer_that_is_not_installed_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ("langchain_core", "langchain", "agent_framework", "pydantic_ai", "pydantic_ai_harness", "llama_index")
    for name in [*packages, *(name for name in sys.modules if name.partition(".")[0] in packages)]:
        monkeypatch.setitem(sys.modules, name, None)  # whether it is installed here, and imported before, or not
    for name in [name for name in sys.modules if ".lab.peers." in name]:
        monkeypatch.delitem(sys.modules, name)
    for peer in PEERS:
        with pytest.raises(Unavailable, match=rf"^{peer}: .*'amplifier-context-testing\[peers\]' brings it$"):
            manager(peer)


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
