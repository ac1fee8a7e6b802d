"""The contract of context managers as tests to inherit: `ManagerContract`.

The test file of a module gives the contract a way to mount it::

    from amplifier_context_testing.manager_contract import ManagerContract


    class TestMyContext(ManagerContract):
        async def mount(self, coordinator: Any, config: dict[str, Any]) -> Any:
            return await my_module.mount(coordinator, config)

It holds for any module of type `context`, by what Amplifier's loops and hosts rely on: the five methods, calls that
stay with their results, compaction that leaves the history alone, a history that is handed back, and events. The budget
is asked for by `token_budget`, as loops do without a provider.

Needs the kernel, pytest, and pytest-asyncio in its auto mode (``asyncio_mode = "auto"``).
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from .checks.coding_session import coding_session
from .checks.message_shapes import SYSTEM_ROLES, Message, is_human, text_of
from .checks.request_checker import check_request
from .recorder import EventRecorder

PROMPT = "You mend programs, and say what you did."
METHODS = ("add_message", "get_messages_for_request", "get_messages", "set_messages", "clear")
_KEPT = ("role", "content", "tool_calls", "tool_call_id", "name")  # of a message; managers may add others
_START = 40  # characters of a message by which it is recognised where it is clipped

Open = Callable[[], Awaitable[Any]]


class ManagerContract:
    """Tests a context module. Inherit it and give `mount`.

    Attributes:
        config: of the module.
        budget: tokens of each request, so few that the session of the tests outgrows them several times.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    budget: ClassVar[int] = 8_000

    async def mount(self, coordinator: Any, config: dict[str, Any]) -> Any:
        """Mount the module under test; return its cleanup, if it has one."""
        pytest.fail("give a `mount` method that mounts the module", pytrace=False)

    @pytest.fixture
    def recorder(self) -> EventRecorder:
        return EventRecorder()

    @pytest.fixture
    async def open_manager(self, recorder: EventRecorder) -> AsyncGenerator[Open]:
        """Open managers, each of a session of its own; clean them up after the test."""
        from amplifier_core.testing import MockCoordinator

        cleanups: list[Any] = []

        async def opened() -> Any:
            coordinator: Any = MockCoordinator()
            recorder.attach(coordinator)
            cleanups.append(await self.mount(coordinator, dict(self.config)))
            return coordinator.get("context")

        yield opened
        for cleanup in cleanups:
            done = cleanup() if cleanup is not None else None
            if inspect.isawaitable(done):
                await done

    @pytest.fixture
    async def manager(self, open_manager: Open) -> Any:
        return await open_manager()

    def test_it_has_the_five_methods(self, manager: Any) -> None:
        assert [name for name in METHODS if not inspect.iscoroutinefunction(getattr(manager, name, None))] == []

    async def test_an_empty_session_has_no_messages(self, manager: Any) -> None:
        assert await manager.get_messages() == []

    async def test_what_was_added_is_returned_in_order(self, manager: Any) -> None:
        given = _session(60)
        await _add(manager, given)
        assert kept(await manager.get_messages()) == kept(given)

    async def test_within_the_budget_a_request_is_the_history(self, manager: Any) -> None:
        given = _session(6)
        await _add(manager, given)
        assert kept(await manager.get_messages_for_request(token_budget=100_000)) == kept(given)

    async def test_set_messages_takes_the_place_of_the_history(self, manager: Any) -> None:
        await _add(manager, _session(12))
        other = _session(60, seed=2)
        await manager.set_messages(copy.deepcopy(other))
        assert kept(await manager.get_messages()) == kept(other)

    async def test_clear_leaves_nothing_and_the_session_goes_on(self, manager: Any) -> None:
        await _add(manager, _session(12))
        await manager.clear()
        assert await manager.get_messages() == []
        await manager.add_message({"role": "user", "content": "Hello again."})
        assert [text_of(one["content"]) for one in await manager.get_messages()] == ["Hello again."]

    async def test_lists_that_were_returned_can_be_changed(self, manager: Any) -> None:
        given = _session(12)
        await _add(manager, given)
        (await manager.get_messages()).clear()
        (await manager.get_messages_for_request(token_budget=self.budget)).clear()
        assert kept(await manager.get_messages()) == kept(given)

    async def test_every_request_of_a_long_session_is_one_that_providers_take(self, manager: Any) -> None:
        """No call is parted from its results, and the system prompt and the newest human message are there."""
        given = _session(240)
        shrunk = 0
        for index, message in enumerate(given):
            if message["role"] == "assistant" and index > 1:
                view = await manager.get_messages_for_request(token_budget=self.budget)
                assert check_request(view) == [], f"before message {index}"
                human = next(one for one in reversed(given[:index]) if is_human(one))
                assert _holds(view, "user", text_of(human["content"])[:_START].strip()), f"before message {index}"
                assert _holds(view, *SYSTEM_ROLES, PROMPT), f"before message {index}"
                shrunk += _size(view) < _size(given[:index]) / 2
            await manager.add_message(copy.deepcopy(message))
        assert shrunk > 10, "the session outgrew the budget, and no view is much smaller than the history"

    async def test_compaction_leaves_the_history_alone(self, manager: Any) -> None:
        given = _session(240)
        for message in given:
            await manager.add_message(copy.deepcopy(message))
            if message["role"] != "assistant":
                await manager.get_messages_for_request(token_budget=self.budget)
        assert kept(await manager.get_messages()) == kept(given)

    async def test_the_same_request_once_more_is_the_same(self, manager: Any) -> None:
        await _add(manager, _session(241))
        first = await manager.get_messages_for_request(token_budget=self.budget)
        assert kept(await manager.get_messages_for_request(token_budget=self.budget)) == kept(first)

    async def test_a_history_that_was_handed_to_a_new_session_goes_on_there(self, open_manager: Open) -> None:
        """Hosts resume so, from a transcript of their own."""
        given = _session(200)
        before, after = await open_manager(), await open_manager()
        await _add(before, given)
        await after.set_messages(json.loads(json.dumps(await before.get_messages())))
        assert kept(await after.get_messages()) == kept(given)
        await after.add_message({"role": "user", "content": "Where were we?"})
        view = await after.get_messages_for_request(token_budget=self.budget)
        assert check_request(view) == []
        assert _holds(view, "user", "Where were we?")

    async def test_a_call_that_was_never_answered_harms_no_request(self, manager: Any) -> None:
        """A turn was cancelled, or the host died; the history keeps the call, no provider would take it."""
        call = {"id": "call_lost", "tool": "read_file", "arguments": {"path": "a.py"}}
        await manager.add_message({"role": "user", "content": "Read it."})
        await manager.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
        await manager.add_message({"role": "user", "content": "What did it say?"})
        assert check_request(await manager.get_messages_for_request(token_budget=self.budget)) == []

    async def test_a_compaction_is_announced(self, manager: Any, recorder: EventRecorder) -> None:
        await _add(manager, _session(6))
        await manager.get_messages_for_request(token_budget=self.budget)
        assert _compactions(recorder) == []
        await _add(manager, _session(240)[1:])
        await manager.get_messages_for_request(token_budget=self.budget)
        assert _compactions(recorder) != []


def kept(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without what a manager may add: metadata, timestamps, keys without a value."""
    return [{key: one[key] for key in _KEPT if one.get(key) is not None} for one in messages]


def _session(count: int, seed: int = 1) -> list[Message]:
    """Return a session with a system prompt, which ends with an answer that calls nothing."""
    messages = [{"role": "system", "content": PROMPT}, *coding_session(count, seed=seed)]
    while messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        messages.pop()
    return messages


async def _add(manager: Any, messages: Sequence[Message]) -> None:
    for message in messages:
        await manager.add_message(copy.deepcopy(message))


def _holds(view: Sequence[Message], *wanted: str) -> bool:
    *roles, text = wanted
    return any(one["role"] in roles and text in text_of(one["content"]) for one in view)


def _size(messages: Sequence[Message]) -> int:
    return len(json.dumps(kept(messages)))


def _compactions(recorder: EventRecorder) -> list[str]:
    return [name for name in recorder.names() if name.startswith("context:") and "compact" in name]
