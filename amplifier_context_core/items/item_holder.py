"""What a queue and a pool of items have in common: tags, hooks, and how they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic

from typing_extensions import TypeVar

from .hooks import HookFunction, HookRegistry, HookType, names_by_type, tags_of
from .injection import Injectable
from .item import ContextItem

T = TypeVar("T", default=Any)


class ItemHolder(Injectable, ABC, Generic[T]):
    """Items, with hooks that run when they change."""

    def __init__(self, tags: Collection[str] | None) -> None:
        self.tags = tags_of(tags or ())  # labels, by which global hooks select it
        self.hooks: list[HookFunction] = []  # of this object alone; a list to be changed freely

    @property
    @abstractmethod
    def limit(self) -> int | None:
        """None for no limit."""

    @property
    @abstractmethod
    def items(self) -> list[ContextItem[T]]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ContextItem[T]]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(limit={self.limit}, len={len(self)})"

    def to_dict(self) -> dict[str, Any]:
        """Return limit, items, names of hooks and tags; raise `ValueError` if a hook has no name."""
        return {
            "limit": self.limit,
            "items": [item.to_dict() for item in self.items],
            "hooks": names_by_type(self.hooks),
            "tags": sorted(self.tags),
        }

    async def _fire(self, type: HookType, arguments: Callable[[], tuple[Any, ...]]) -> None:
        """Each hook gets arguments of its own."""
        for hook in HookRegistry.matching(self.hooks, type, self.tags):
            await hook(*arguments())
