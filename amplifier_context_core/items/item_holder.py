"""What a queue and a pool of items have in common: limit, tags, hooks, and how they are cleared and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, ClassVar, Generic, Self

from typing_extensions import TypeVar

from .hooks import (
    ContextPoolHook,
    ContextQueueHook,
    HookFunction,
    HookRegistry,
    HookType,
    hooks_by_name,
    names_by_type,
    tags_of,
)
from .injection import Injectable
from .item import ContextItem

T = TypeVar("T", default=Any)


class ItemHolder(Injectable, ABC, Generic[T]):
    """Items, with hooks that run when they change."""

    events: ClassVar[type[ContextPoolHook | ContextQueueHook]]
    _items: Any  # a dict or a list; a class that inherits says of what

    def __init__(self, limit: int | None, tags: Collection[str] | None) -> None:
        if limit is not None and not limit >= 1:  # NaN is neither below nor above
            raise ValueError("limit must be >= 1")
        self._limit = limit
        self.tags = tags_of(tags or ())  # labels, by which global hooks select it
        self.hooks: list[HookFunction] = []  # of this object alone; a list to be changed freely

    @property
    @abstractmethod
    def items(self) -> list[ContextItem[T]]: ...

    @abstractmethod
    def replace_items(self, items: Iterable[ContextItem[T]]) -> None:
        """Put these items in place of all that are there. No hook runs."""

    @property
    def limit(self) -> int | None:
        return self._limit

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ContextItem[T]]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(limit={self._limit}, len={len(self)})"

    def to_dict(self) -> dict[str, Any]:
        """Return limit, items, names of hooks and tags; raise `ValueError` if a hook has no name."""
        return {
            "limit": self._limit,
            "items": [item.to_dict() for item in self.items],
            "hooks": names_by_type(self.hooks),
            "tags": sorted(self.tags),
        }

    async def clear(self) -> None:
        before = self._items.copy()
        await self._fire(self.events.BEFORE_CLEAR, lambda: (self, before.copy()))
        self._items.clear()
        await self._fire(self.events.AFTER_CLEAR, lambda: (self,))

    def branch(
        self, limit: int | EllipsisType | None = ..., hooks: Sequence[HookFunction] | EllipsisType | None = ...
    ) -> Self:
        """Return an independent one that begins with these items. No hook runs.

        Args:
            limit: of the new one. Left out, it is that of this one; None for no limit, and of a queue for the same.
                Where fewer items fit, the newest are kept.
            hooks: of the new one. Left out, they are those of this one; None or an empty list for none.

        Raises:
            ValueError: `limit` is below 1.
        """
        child = type(self)(self._limit if isinstance(limit, EllipsisType) else limit, self.tags)
        child.replace_items(self.items if child._limit is None else self.items[-child._limit :])
        child.hooks = list(self.hooks if isinstance(hooks, EllipsisType) else hooks or ())
        return child

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote. A pool has all of the items even beyond its limit. No hook runs.

        Raises:
            KeyError: an item has no ``content``.
            UnregisteredHookError: a hook is not registered under its name.
            ValueError: an item of a pool has no id, or the limit is below 1.
        """
        made = cls(data.get("limit"), data.get("tags"))
        made.replace_items(map(ContextItem.from_dict, data.get("items") or ()))
        made.hooks = hooks_by_name(data.get("hooks") or {}, cls.events)
        return made

    async def _fire(self, type: HookType, arguments: Callable[[], tuple[Any, ...]]) -> None:
        """Each hook gets arguments of its own."""
        for hook in HookRegistry.matching(self.hooks, type, self.tags):
            await hook(*arguments())
