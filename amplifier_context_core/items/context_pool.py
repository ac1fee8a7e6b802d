"""Items by id, in the order in which their ids were added first.

Hooks get the item, or a copy of the items. If a hook raises before an item is added, the pool is as it was: an item
that was evicted for it comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from typing_extensions import TypeVar

from .hooks import ContextPoolHook, HookPoint
from .item import ContextItem, label_of
from .item_holder import ItemHolder

T = TypeVar("T", default=Any)


class ContextPool(ItemHolder[T]):
    """Items by id, at most `limit` of them.

    Args:
        limit: the largest number of items, at least 1; None for no limit.
        tags: labels, by which global hooks select it.

    Raises:
        ValueError: `limit` is below 1.
    """

    events = ContextPoolHook
    before_add = HookPoint(ContextPoolHook.BEFORE_ADD)
    after_add = HookPoint(ContextPoolHook.AFTER_ADD)
    before_remove = HookPoint(ContextPoolHook.BEFORE_REMOVE)
    after_remove = HookPoint(ContextPoolHook.AFTER_REMOVE)
    before_clear = HookPoint(ContextPoolHook.BEFORE_CLEAR)
    after_clear = HookPoint(ContextPoolHook.AFTER_CLEAR)
    on_evict = HookPoint(ContextPoolHook.ON_EVICT)

    def __init__(self, limit: int | None = None, tags: Collection[str] | None = None) -> None:
        super().__init__(limit, tags)
        self._items: dict[str, ContextItem[T]] = {}

    @property
    def items(self) -> list[ContextItem[T]]:
        """In the order of their ids' first addition, in a new list."""
        return list(self._items.values())

    def get(self, id: str) -> ContextItem[T]:
        """Raises `KeyError`: there is no item of this id."""
        return self._items[id]

    def catalogue(self) -> str:
        """Return a line ``- [id] description`` for each item; empty for an empty pool."""
        return "\n".join(f"- {label_of(item)}" for item in self._items.values())

    async def add(self, item: ContextItem[T]) -> None:
        """Add an item, or replace that of the same id in its place. For a new id the oldest item is evicted if need be.

        Raises:
            TypeError: it is no `ContextItem`.
            ValueError: it has no id or no description.
        """
        if not isinstance(item, ContextItem):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise TypeError(f"a ContextPool takes ContextItem only, got {type(item).__name__}")
        if item.id is None or item.description is None:
            raise ValueError("a ContextPool takes a ContextItem with both 'id' and 'description' set")
        evicted: dict[str, ContextItem[T]] = {}
        try:
            await self._evict_for(item.id, evicted)
            await self._fire(ContextPoolHook.BEFORE_ADD, lambda: (self, item))
            await self._evict_for(item.id, evicted)  # another task may have taken the room
        except BaseException:
            self._restore(evicted)
            raise
        self._items[item.id] = item
        await self._fire(ContextPoolHook.AFTER_ADD, lambda: (self, item))

    def replace_items(self, items: Iterable[ContextItem[T]]) -> None:
        """Put these items in place of all that are there, whatever the limit. No hook runs.

        Raises:
            ValueError: one of them has no id.
        """
        replaced: dict[str, ContextItem[T]] = {}
        for item in items:
            if item.id is None:
                raise ValueError("ContextPool requires a ContextItem with 'id' set")
            replaced[item.id] = item
        self._items = replaced

    async def remove(self, id: str) -> None:
        """Raises `KeyError`: there is no item of this id; then no hook runs."""
        item = self._items[id]
        await self._fire(ContextPoolHook.BEFORE_REMOVE, lambda: (self, item))
        self._items.pop(id, None)
        await self._fire(ContextPoolHook.AFTER_REMOVE, lambda: (self, item))

    async def _evict_for(self, id: str, evicted: dict[str, ContextItem[T]]) -> None:
        """Hooks see the item that goes while it is still in the pool."""
        while self._limit is not None and id not in self._items and len(self._items) >= self._limit:
            first, oldest = next(iter(self._items.items()))
            await self._fire(ContextPoolHook.ON_EVICT, lambda oldest=oldest: (self, oldest))
            if self._items.get(first) is oldest:  # another task may have replaced or evicted it meanwhile
                evicted[first] = self._items.pop(first)

    def _restore(self, evicted: dict[str, ContextItem[T]]) -> None:
        """Put evicted items back in front, as far as there is room: what other tasks did meanwhile stays."""
        room = max(0, (self._limit or 0) - len(self._items))
        back = list(evicted.items())[-room:] if room else []
        self._items = {**dict(back), **self._items}
