"""A recorder of kernel events with their data, in the order of emission.

It registers one handler per event name, because the kernel's registry has no wildcard. Its handlers run before all
others (lowest priority number): one that denies an event ends the chain, and later ones never see the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

FIRST = -1000  # priority: the kernel calls handlers from the lowest number up


class Event(NamedTuple):
    """One emitted event; `data` is a copy made when it was emitted."""

    name: str
    data: dict[str, Any]


class EventRecorder:
    """Records `(name, data)` of every event emitted on a registry, from `attach` to `detach`.

    Args:
        source: a coordinator (its `hooks` are used) or a hook registry; attached at once when given.
        events: the names to record; by default all the kernel declares.
        only: kept out of the record unless the name starts with one of these prefixes.

    Attributes:
        records: the events, in the order they were emitted. Several registries may feed one recorder.
    """

    def __init__(
        self, source: Any = None, events: Iterable[str] | None = None, *, only: tuple[str, ...] | None = None
    ) -> None:
        self.records: list[Event] = []
        self._only = only
        self._undo: list[Callable[[], Any]] = []
        if source is not None:
            self.attach(source, events)

    def attach(self, source: Any, events: Iterable[str] | None = None) -> Self:
        hooks = getattr(source, "hooks", source)
        for name in dict.fromkeys(kernel_events() if events is None else events):
            self._undo.append(hooks.register(name, self._record, FIRST, f"event-recorder:{name}:{id(self):x}"))
        return self

    def detach(self) -> None:
        while self._undo:
            self._undo.pop()()

    def named(self, *names: str) -> list[dict[str, Any]]:
        """Return the data of all events of these names, in order."""
        return [event.data for event in self.records if event.name in names]

    def last(self, name: str) -> dict[str, Any] | None:
        """Return the data of the newest event of a name, or `None`."""
        return next((event.data for event in reversed(self.records) if event.name == name), None)

    def names(self) -> list[str]:
        return [event.name for event in self.records]

    def count(self, name: str) -> int:
        return self.names().count(name)

    def counts(self) -> Counter[str]:
        return Counter(self.names())

    def clear(self) -> None:
        self.records.clear()

    async def _record(self, event: str, data: dict[str, Any]) -> Any:
        from amplifier_core.models import HookResult

        if self._only is None or event.startswith(self._only):
            self.records.append(Event(event, deepcopy(data)))
        return HookResult()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def kernel_events() -> list[str]:
    from amplifier_core import events

    declared = cast("list[str]", list(events.ALL_EVENTS))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return [*declared, *(name for name in LOOP_EVENTS if name not in declared)]


LOOP_EVENTS = ("execution:start", "execution:end", "session:config", "context:tool_result_ingress_truncated")
"""Events that modules emit although an older kernel may not declare them."""
