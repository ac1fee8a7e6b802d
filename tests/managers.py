"""Managers with settings, in the place that a test runs on: filled, and asked for views that are checked."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager, TokenCounter, approx_token_counter
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_core.compaction.strategies import Goal, Strategy
from amplifier_context_core.events import EVENTS
from amplifier_context_core.session.host import Host
from amplifier_context_testing import EventRecorder, WordCounter, checked
from tests.authors import make_manager
from tests.messages import Message, size
from tests.places import Place


class Watch(Strategy):
    name = "watch"

    def __init__(self) -> None:
        self.goals: list[Goal] = []

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        self.goals.append(goal)
        return draft


class Does(Strategy):
    def __init__(self, work: Callable[[Draft], Any], name: str = "does") -> None:
        self.name, self._work = name, work

    def apply(self, draft: Draft, goal: Goal) -> Any:
        return self._work(draft)


class Counter(WordCounter):
    """Counts tokens as the heuristic does, and what it was asked to count. Its name is always the same."""

    exact = False

    def __call__(self, text: str) -> int:
        super().__call__(text)
        return approx_token_counter(text)

    def __repr__(self) -> str:
        return "tests.Counter"


class ToolHost(Host):
    """A host with these tools, as they are when it is asked."""

    def __init__(self, tools: Callable[[], object]) -> None:
        super().__init__()
        self._tools = tools

    def tools(self) -> object:
        return self._tools()


_where: tuple[str, Path] = ("memory", Path())
_opened: list[ContextManager] = []


def begin(backend: str, folder: Path) -> None:
    """Managers keep their histories here from now on."""
    global _where
    _where = (backend, folder)


async def end() -> None:
    """Close the managers that were made. Those that come keep their histories in memory again."""
    global _where
    _where = ("memory", Path())
    while _opened:
        await _opened.pop().store.close()


def new_manager(
    *,
    counter: TokenCounter | None = None,
    hooks: Any = None,
    session_id: str = "s",
    strategies: Sequence[Strategy] | None = None,
    **config: Any,
) -> ContextManager:
    """A manager of its own; keyword arguments are config keys."""
    backend, folder = _where
    place = Place(backend, folder / str(len(_opened)))
    manager = make_manager(
        {"token_counter": "heuristic", **config},
        session_id=place.session_id(session_id),
        hooks=hooks,
        counter=counter,
        ladder=strategies,
        store=place.store(),
    )
    _opened.append(manager)
    return manager


def watched(hooks: HookRegistry | None = None, **more: Any) -> tuple[ContextManager, EventRecorder]:
    """A manager, and a recorder of its events; keyword arguments are those of `new_manager`."""
    hooks = hooks or HookRegistry()
    recorder = EventRecorder(hooks, EVENTS)
    return new_manager(hooks=hooks, **more), recorder


async def feed(manager: ContextManager, messages: Iterable[Message]) -> ContextManager:
    """Add messages one by one; the manager."""
    for message in messages:
        await manager.add_message(message)
    return manager


async def ask(manager: ContextManager, budget: int | None = None, provider: Any = None) -> list[Message]:
    """A view, valid for every provider and within the budget."""
    view = await manager.get_messages_for_request(budget, provider)
    checked(view)
    if budget is not None:
        assert size(view) <= budget, f"{size(view)} tokens, over the budget of {budget}"
    return view


def valid(view: list[Message]) -> list[Message]:
    """Return a view that every provider takes, if it holds anything but instructions: else there is nothing to send."""
    return checked(view) if any(message["role"] not in ("system", "developer") for message in view) else view


def marks(manager: ContextManager) -> list[str]:
    return [entry.mark for entry in manager.snapshot()]
