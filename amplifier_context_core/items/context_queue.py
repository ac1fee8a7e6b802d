"""A bounded window of items: the newest ones, in order.

Hooks get copies, so that nothing they do to a list changes the queue. A change that a hook refuses by raising before it
is made, or while items are evicted for it, leaves the queue as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import index
from types import EllipsisType
from typing import Any, Self

from typing_extensions import TypeVar

from .hooks import ContextQueueHook, HookFunction, HookPoint
from .item import ContextItem, payload_text
from .item_holder import ItemHolder

T = TypeVar("T", default=Any)


class ContextQueue(ItemHolder[T]):
    """The newest items, at most `limit` of them.

    Args:
        limit: the largest number of items, at least 1.
        tags: labels, by which global hooks select it.

    Raises:
        ValueError: `limit` is below 1.
    """

    events = ContextQueueHook
    before_append = HookPoint(ContextQueueHook.BEFORE_APPEND)
    after_append = HookPoint(ContextQueueHook.AFTER_APPEND)
    before_clear = HookPoint(ContextQueueHook.BEFORE_CLEAR)
    after_clear = HookPoint(ContextQueueHook.AFTER_CLEAR)
    on_evict = HookPoint(ContextQueueHook.ON_EVICT)

    def __init__(self, limit: int, tags: Collection[str] | None = None) -> None:
        super().__init__(index(limit), tags)  # the pool alone may have none
        self._items: list[ContextItem[T]] = []
        self._limit: int = limit

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def items(self) -> list[ContextItem[T]]:
        """The items, oldest first, in a new list. Assigning replaces them without hooks; the newest that fit stay."""
        return list(self._items)

    @items.setter
    def items(self, items: Iterable[ContextItem[T]]) -> None:
        self.replace_items(items)

    def replace_items(self, items: Iterable[ContextItem[T]]) -> None:
        """Of more items than fit, the newest stay."""
        self._items = _checked(items)[-self._limit :]

    def history(self, last: int | None = None) -> str:
        """Return the contents as text, a line each; with `last`, of that many of the newest items."""
        items = self.items if last is None else self.items[-last:]
        return "\n".join(payload_text(item.content) for item in items)

    async def append(self, *items: ContextItem[T]) -> None:
        """Append items, one after another; the oldest is evicted for each that does not fit.

        Raises:
            TypeError: one of them is no `ContextItem`; then none is appended.
        """
        incoming = _checked(items)
        before = self.items
        await self._fire(ContextQueueHook.BEFORE_APPEND, lambda: (self, list(incoming), list(before)))
        evicted: list[ContextItem[T]] = []
        appended: list[ContextItem[T]] = []
        try:
            for item in incoming:
                while len(self._items) >= self._limit:
                    oldest = self._items[0]
                    await self._fire(ContextQueueHook.ON_EVICT, lambda oldest=oldest: (self, oldest))
                    if self._items and self._items[0] is oldest:  # another task may have evicted it meanwhile
                        evicted.append(self._items.pop(0))
                self._items.append(item)
                appended.append(item)
        except BaseException:
            self._undo(appended, evicted)
            raise
        after = self.items
        await self._fire(ContextQueueHook.AFTER_APPEND, lambda: (self, list(incoming), list(after)))

    def branch(
        self, limit: int | EllipsisType | None = None, hooks: Sequence[HookFunction] | EllipsisType | None = ...
    ) -> Self:
        return super().branch(self._limit if limit is None else limit, hooks)

    def _undo(self, appended: Sequence[ContextItem[T]], evicted: Sequence[ContextItem[T]]) -> None:
        """Take back the first part of an append whose hook raised; what other tasks did meanwhile stays."""
        left = list(self._items)
        for item in reversed(appended):
            places = [place for place, one in enumerate(left) if one is item]
            if places:
                del left[places[-1]]
        old = [item for item in evicted if not any(item is one for one in appended)]
        self._items = [*old, *left][-self._limit :]


def _checked(items: Iterable[ContextItem[T]]) -> list[ContextItem[T]]:
    found = list(items)
    for item in found:
        if not isinstance(item, ContextItem):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise TypeError(f"a ContextQueue takes ContextItem only, got {type(item).__name__}")
    return found
