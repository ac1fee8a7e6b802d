"""The probe records every message and every view, and changes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amplifier_context_testing import check_request
from amplifier_context_testing.demo.probe import ContextProbe, Request
from amplifier_context_testing.fakes import ListContext

HELLO = {"role": "user", "content": "Hello."}
ANSWER = {"role": "assistant", "content": "Hi."}


class Coordinator:
    """As much of a coordinator as the probe uses."""

    def __init__(self, context: Any) -> None:
        self.mounted = context
        self.capabilities: dict[str, Any] = {}
        self.hooks = self

    def get(self, point: str) -> Any:
        return self.mounted

    async def mount(self, point: str, module: Any) -> None:
        self.mounted = module

    def get_capability(self, name: str) -> Any:
        return self.capabilities.get(name)

    def register_capability(self, name: str, capability: Any) -> None:
        self.capabilities[name] = capability

    def register(self, event: str, handler: Any, priority: int, name: str) -> None:
        """Nothing is emitted here."""


class Observer:
    """Records the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def on_request(self, request: Request) -> None:
        self.requests.append(request)

    def on_response(self, request: Request) -> None: ...

    def on_compaction(self, report: Mapping[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def probe(observer: Observer) -> ContextProbe:
    return ContextProbe(observer, check_request)


async def watched(probe: ContextProbe, context: Any) -> Any:
    coordinator = Coordinator(context)
    await probe.attach(coordinator)
    return coordinator.mounted


async def test_it_finds_a_history_complete_that_was_only_stamped_with_times(probe: ContextProbe) -> None:
    class Stamping(ListContext):
        async def add_message(self, message: dict[str, Any]) -> None:
            await super().add_message({**message, "metadata": {"timestamp": "2030-01-01T00:00:00.000Z"}})

    context = await watched(probe, Stamping())
    await context.add_message(dict(HELLO))
    assert (await probe.check_history()).complete


async def test_a_history_with_a_message_too_many_is_not_complete(probe: ContextProbe) -> None:
    inner = ListContext()
    context = await watched(probe, inner)
    await context.add_message(dict(HELLO))
    inner.messages.append(dict(ANSWER))
    check = await probe.check_history()
    assert (check.complete, check.first_difference) == (False, 1)


async def test_what_was_there_before_belongs_to_the_history(probe: ContextProbe) -> None:
    inner = ListContext()
    await inner.add_message(dict(HELLO))
    context = await watched(probe, inner)
    await context.add_message(dict(ANSWER))
    check = await probe.check_history()
    assert (check.complete, check.kept) == (True, 2)


async def test_a_refused_message_did_not_go_in(probe: ContextProbe) -> None:
    class Refusing(ListContext):
        async def add_message(self, message: dict[str, Any]) -> None:
            raise ValueError("no")

    context = await watched(probe, Refusing())
    with pytest.raises(ValueError, match="no"):
        await context.add_message(dict(HELLO))
    assert (await probe.check_history()).added == 0


async def test_what_the_host_makes_of_the_history_is_the_history(probe: ContextProbe) -> None:
    context = await watched(probe, ListContext())
    await context.add_message(dict(HELLO))
    await context.set_messages([dict(HELLO), dict(ANSWER)])
    assert (await probe.check_history()).complete
    await context.clear()
    assert (await probe.check_history()).kept == 0


async def test_a_context_that_explains_nothing_is_measured_by_comparing_its_lists(
    probe: ContextProbe, observer: Observer
) -> None:
    context = await watched(probe, ListContext())
    await context.add_message(dict(HELLO))
    await context.get_messages_for_request(token_budget=100)
    await context.add_message(dict(ANSWER))
    await context.add_message(dict(HELLO))
    await context.get_messages_for_request(100)
    first, second = observer.requests
    assert (first.number, first.prefix, first.budget) == (1, 0, 100)
    assert (second.number, second.prefix, second.budget) == (2, first.tokens, 100)
    assert 0 < second.share < 1


async def test_lists_got_by_request_retention_are_seen_too(probe: ContextProbe, observer: Observer) -> None:
    coordinator = Coordinator(ListContext())

    async def retain(**options: Any) -> list[dict[str, Any]]:
        return [dict(HELLO)]

    coordinator.capabilities["context.request_retention"] = retain
    await probe.attach(coordinator)
    await coordinator.capabilities["context.request_retention"](retain_contents=["Hello."], token_budget=50)
    assert [request.budget for request in observer.requests] == [50]


async def test_everything_else_is_handed_on(probe: ContextProbe) -> None:
    inner = ListContext()
    context = await watched(probe, inner)
    assert context.messages is inner.messages
