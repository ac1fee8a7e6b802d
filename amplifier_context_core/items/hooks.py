"""Hooks of queues and pools: async functions that run around a change.

A hook of one object is in its list `hooks`. A global hook, made with `@hook`, runs for every object of its type, or
only for objects that share one of its tags. The hooks of the object run first. A hook runs once for each event,
whatever lists it is in. If it raises, the hooks after it do not run and the caller of the change gets the exception.

These hooks are of the objects alone: plug-ins are in `plugins.py`, and events of the kernel in `events.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, ClassVar, TypeAlias, cast

from ..errors import UnregisteredHookError

HookFunction: TypeAlias = Callable[..., Awaitable[object]]


class ContextQueueHook(StrEnum):
    BEFORE_APPEND = "before_append"
    AFTER_APPEND = "after_append"
    BEFORE_CLEAR = "before_clear"
    AFTER_CLEAR = "after_clear"
    ON_EVICT = "on_evict"


class ContextPoolHook(StrEnum):
    BEFORE_ADD = "before_add"
    AFTER_ADD = "after_add"
    BEFORE_REMOVE = "before_remove"
    AFTER_REMOVE = "after_remove"
    BEFORE_CLEAR = "before_clear"
    AFTER_CLEAR = "after_clear"
    ON_EVICT = "on_evict"


HookType: TypeAlias = ContextQueueHook | ContextPoolHook


class Hook:
    """An async function with the events that it is for.

    Args:
        function: awaited for each event.
        type: the event, or several.
        tags: of a global hook: the object must have one of them; None for every object.

    Raises:
        TypeError: the function is not async.
        ValueError: there is no event.
    """

    def __init__(
        self, function: HookFunction, type: HookType | Iterable[HookType], *, tags: Collection[str] | None = None
    ) -> None:
        types = (type,) if isinstance(type, Enum) else tuple(type)
        if not types:
            raise ValueError("a hook needs at least one type")
        self.__name__ = str(getattr(function, "__name__", function.__class__.__name__))
        self.__doc__ = function.__doc__
        if not any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
            raise TypeError(f"hook {self.__name__!r} must be an async function")
        self.type: HookType | tuple[HookType, ...] = types[0] if len(types) == 1 else types
        self.fn = function
        self.tags = None if tags is None else tags_of(tags)

    def __repr__(self) -> str:
        return f"Hook({self.__name__!r})"

    async def __call__(self, *args: Any) -> object:
        return await self.fn(*args)


class HookRegistry:
    """The hooks of this process by name, and those that are global."""

    _by_name: ClassVar[dict[str, HookFunction]] = {}
    _global: ClassVar[list[Hook]] = []

    @classmethod
    def register(cls, hook: HookFunction, name: str | None = None) -> None:
        """Add a hook under a name, by default its own. Adding it once more changes nothing.

        Raises:
            ValueError: another hook has that name.
        """
        name = name or hook_name(hook)
        known = cls._by_name.setdefault(name, hook)
        if known is not hook and _function_of(known) is not _function_of(hook):
            raise ValueError(f"hook {name!r} is already registered; give the other one a name of its own")

    @classmethod
    def get(cls, name: str) -> HookFunction:
        """Raises `UnregisteredHookError`: there is no hook of this name."""
        try:
            return cls._by_name[name]
        except KeyError:
            raise UnregisteredHookError(name) from None

    @classmethod
    def clear(cls) -> None:
        cls._by_name.clear()
        cls._global.clear()

    @classmethod
    def register_global(cls, hook: Hook) -> None:
        if not any(one is hook for one in cls._global):
            cls._global.append(hook)

    @classmethod
    def get_global_by_type(cls, type: HookType, tags: Collection[str] = ()) -> list[Hook]:
        """The tags are those of an object."""
        return [one for one in cls._global if is_for(one, type) and (one.tags is None or not one.tags.isdisjoint(tags))]

    @classmethod
    def matching(cls, hooks: Iterable[HookFunction], type: HookType, tags: Collection[str] = ()) -> list[HookFunction]:
        """Return hooks of the object, then global ones, each once."""
        found: dict[int, HookFunction] = {}
        for one in (*(one for one in hooks if is_for(one, type)), *cls.get_global_by_type(type, tags)):
            found.setdefault(id(one), one)
        return list(found.values())

    @classmethod
    def wrap(
        cls, function: HookFunction, type: HookType | Iterable[HookType], *, tags: Collection[str] | None = None
    ) -> Hook:
        """Return a function as a registered hook; a hook of exactly these types as it is.

        Raises:
            TypeError: the function is not async.
            ValueError: there is no event, or another hook has the name of the function.
        """
        made = Hook(_function_of(function), type, tags=tags)
        if isinstance(function, Hook) and _types_of(function) == _types_of(made) and not tags:
            return function
        cls.register(made)
        return made


def hook(type: HookType | Sequence[HookType], *, tags: Collection[str] | None = None) -> Callable[[HookFunction], Hook]:
    """Make an async function a hook for every object, or for those that share a tag; see `HookRegistry.wrap`."""

    def decorate(function: HookFunction) -> Hook:
        made = HookRegistry.wrap(function, type, tags=tags)
        HookRegistry.register_global(made)
        return made

    return decorate


class HookPoint:
    """An attribute of a class: the decorator that adds hooks for one event to an object."""

    def __init__(self, type: HookType) -> None:
        self._type: HookType = type

    def __get__(self, instance: Any, owner: object = None) -> Callable[[HookFunction], Hook]:
        def attach(function: HookFunction) -> Hook:
            made = HookRegistry.wrap(function, self._type)
            if not any(one is made for one in instance.hooks):
                instance.hooks.append(made)
            return made

        return attach


def is_for(hook: HookFunction, type: HookType) -> bool:
    """True also for a bare callable whose attribute `type` is the event."""
    # By identity: two events of different enums may be equal, because their members are texts.
    return any(one is type for one in _types_of(hook))


def hook_name(hook: HookFunction) -> str:
    """Return the name under which a hook is saved; raise `ValueError` if it has none."""
    name = getattr(hook, "__name__", None)
    if not isinstance(name, str) or not name:
        raise ValueError("a hook without __name__ cannot be saved; make it a named async function")
    return name


def names_by_type(hooks: Iterable[HookFunction]) -> dict[str, list[str]]:
    """Return hooks as they are saved: names by the value of their event."""
    saved: dict[str, list[str]] = {}
    for one in hooks:
        for type in _types_of(one):
            saved.setdefault(type.value, []).append(hook_name(one))
    return saved


def hooks_by_name(saved: Mapping[str, Iterable[str]], types: Iterable[HookType]) -> list[HookFunction]:
    """Return the hooks that `names_by_type` saved, each name once; `types` are the events of the object.

    Raises:
        UnregisteredHookError: a name is not registered.
    """
    events = {type.value: type for type in types}
    wanted: dict[str, list[HookType]] = {}
    for value, names in saved.items():
        for name in names:
            wanted.setdefault(name, []).extend([events[value]] if value in events else [])
    found: list[HookFunction] = []
    for name, of in wanted.items():
        known = HookRegistry.get(name)
        missing = [type for type in of if not is_for(known, type)]
        # One function may be a hook for different events of different objects, under one name.
        found.append(Hook(_function_of(known), of) if missing else known)
    return found


def tags_of(tags: Collection[str]) -> frozenset[str]:
    """Raises `TypeError`: they are one text, whose letters would each become a tag."""
    if isinstance(tags, str):
        raise TypeError(f"tags must be a list of texts, not the text {tags!r}")
    return frozenset(tags)


def _types_of(hook: HookFunction) -> tuple[HookType, ...]:
    types: object = getattr(hook, "type", ())
    return cast("tuple[HookType, ...]", types if isinstance(types, tuple) else (types,))


def _function_of(hook: HookFunction) -> HookFunction:
    return hook.fn if isinstance(hook, Hook) else hook
