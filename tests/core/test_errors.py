"""Errors: one tree, and nothing in it that repeats what a message says."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest

from amplifier_context_core import (
    ConfigError,
    ContextError,
    ContextManager,
    ContextOverflow,
    InvalidMessage,
    PinRefused,
    PluginError,
    Plugins,
    StoreError,
    load_config,
    open_store,
)
from amplifier_context_core.errors import install_command
from amplifier_context_core.messages.parsing import parse_message

SECRET = "hunter2-SECRET"


@pytest.mark.parametrize("kind", [InvalidMessage, ConfigError, PinRefused, ContextOverflow, PluginError, StoreError])
def test_every_error_is_caught_by_the_base_and_those_about_an_argument_are_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, ContextError)
    assert issubclass(kind, ValueError) is (kind in (InvalidMessage, ConfigError, PinRefused))


@pytest.mark.parametrize(
    "message",
    [
        {"role": SECRET, "content": SECRET},
        {"content": SECRET},
        {"role": "user", "content": [{"text": SECRET}]},
        {"role": "user", "content": SECRET, "metadata": SECRET},
        {"role": "tool", "content": SECRET},
        {"role": "assistant", "content": SECRET, "tool_calls": [SECRET]},
        SECRET,
        {"role": "user", "content": {"text": SECRET}},
        {"role": "user", "content": SECRET, "metadata": {"bytes": SECRET.encode()}},
        {"role": "user", "content": SECRET, "metadata": {("a", SECRET): 1}},
        {"role": "assistant", "content": SECRET, "tool_calls": [{"function": {"arguments": SECRET}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "input": {"password": SECRET}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": SECRET}]},
    ],
    ids=str,
)
def test_the_refusal_of_a_message_does_not_quote_it(message: Any) -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse_message(message)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


async def test_an_overflow_is_reported_in_marks_and_sizes_without_content() -> None:
    manager = ContextManager(load_config({"strict": True, "token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message({"role": "system", "content": f"{SECRET} " * 200})
    await manager.add_message({"role": "user", "content": f"{SECRET} " * 200})
    with pytest.raises(ContextOverflow) as caught:
        await manager.get_messages_for_request(token_budget=60)
    assert SECRET not in str(caught.value)
    assert "60" in str(caught.value)


async def test_a_refused_pin_is_reported_in_sizes_without_content() -> None:
    manager = ContextManager(load_config({"max_tokens": 100, "token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message({"role": "user", "content": f"{SECRET} " * 200})
    with pytest.raises(PinRefused, match=r"m1 has .* tokens") as caught:
        await manager.pin("m1")
    assert SECRET not in str(caught.value)


async def test_a_text_to_retain_that_is_unknown_is_not_quoted() -> None:
    manager = ContextManager(plugins=Plugins())
    with pytest.raises(ValueError, match="not in the history") as caught:
        await manager.request_retention(retain_contents=[SECRET])
    assert SECRET not in str(caught.value)


async def test_a_failing_prompt_factory_is_named_by_its_kind_only() -> None:
    async def factory() -> str:
        raise RuntimeError(SECRET)

    manager = ContextManager(plugins=Plugins())
    await manager.add_message({"role": "user", "content": "Go."})
    await manager.set_system_prompt_factory(factory)
    with pytest.raises(ContextError, match="RuntimeError") as caught:
        await manager.get_messages_for_request(token_budget=1_000)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [f"nosuch://anna:{SECRET}@db.example.com/x", f"//anna={SECRET}@db.example.com/x"])
def test_a_url_of_a_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url, Plugins())
    assert SECRET not in str(caught.value)


def test_the_command_that_installs_an_extra_can_be_pasted_whatever_the_path_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/it's my/python3")
    command = ["/opt/it's my/python3", "-m", "pip", "install", "amplifier-context-core[vectors]"]
    assert shlex.split(install_command("vectors")) == command
