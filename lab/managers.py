"""Managers by name: as the kernel loads them, by dotted path, the unlimited window, and peers.

| written | what it is |
| --- | --- |
| `context-simple` | the Amplifier module of that id, loaded by its entry point and mounted; there is no model to ask |
| `context-simple:target_usage=0.4,ladder=[fold, drop]` | the same with config; values are YAML |
| `package.module:factory` | `factory(config)` returns a context manager, or is an Amplifier module's `mount` |
| `unlimited` | the whole history, whatever the budget: the price of never compacting |
| `pydantic-ai-tiered` | a peer: its own code with its defaults; a cut is kept, since cutting again costs more |
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, TypeAlias, cast

import yaml

from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, as_mapping
from amplifier_context_testing.fakes import ListContext
from amplifier_context_testing.replay.transcripts import Context

GROUP = "amplifier.modules"  # entry points the kernel finds modules by
PEERS = ("unlimited", "pydantic-ai-tiered")
Opened: TypeAlias = AsyncGenerator[Context]
_EQUALS = re.compile(r"((?:^|,)\s*\w+)=")


class Unavailable(Exception):
    """A manager is not available; the text names the reason and the next step."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A kind of context manager; each session gets a new one.

    Attributes:
        open: makes one for as long as it is used, given what is weighed with and the budget (tokens).
        reads_provider: its views may depend on the provider that a request names.
    """

    label: str
    open: Callable[[TokenScale, int], AbstractAsyncContextManager[Context]] = field(repr=False)
    reads_provider: bool = True


def manager(spec: str, *, config: Mapping[str, Any] | None = None) -> Manager:
    """Return the manager of a name, as in the table above; `config` goes over what the spec holds.

    Raises:
        Unavailable: there is no such manager, or a package it needs is missing.
        ValueError: its config cannot be read.
    """
    name, given = _parsed(spec)
    given.update(config or {})
    if name in PEERS:
        if given:
            raise ValueError(f"{name} takes no config, got {', '.join(given)}")
        return Manager(spec, partial(_open_peer, _peer(name)), reads_provider=False)
    make = _made_by(name) if ":" in name else _mount_of(name)
    is_module = ":" not in name or name.endswith(":mount")
    return Manager(spec, partial(_open_module if is_module else _open_made, make, given))


def _mount_of(name: str) -> Callable[..., Any]:
    """Return the mount function of an installed module.

    Raises:
        Unavailable: there is no such module, or it cannot be imported.
    """
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = sorted({point.name for point in entry_points(group=GROUP) if "context" in point.name})
        raise Unavailable(
            f"there is no context manager {name!r}: installed modules are {', '.join(known) or 'none'}; "
            f"others are {', '.join(PEERS)}, or package.module:factory"
        )
    try:
        return found[0].load()
    except ImportError as problem:
        raise Unavailable(f"{name} cannot be loaded: {problem}") from problem


class _Unlimited(ListContext):
    async def add_message(self, message: Message) -> None:
        """Store a message; absent content becomes empty text, as loops send it."""
        content = message.get("content")
        self.messages.append({**message, "content": "" if content is None else content})


def _peer(name: str) -> Callable[[TokenScale, int], Context]:
    if name == "unlimited":
        return lambda scale, budget: _Unlimited()
    try:
        from .pydantic_ai_tiered import Tiered

        return Tiered
    except ImportError as problem:
        raise Unavailable(f"{name}: {problem}; pip install 'pydantic-ai-harness>=0.62' brings it") from problem


@asynccontextmanager
async def _open_peer(make: Callable[[TokenScale, int], Context], scale: TokenScale, budget: int) -> Opened:
    yield make(scale, budget)


@asynccontextmanager
async def _open_made(make: Callable[..., Any], config: Mapping[str, Any], scale: TokenScale, budget: int) -> Opened:
    made = make(dict(config))
    yield cast(Context, await made if inspect.isawaitable(made) else made)


@asynccontextmanager
async def _open_module(mount: Callable[..., Any], config: Mapping[str, Any], scale: TokenScale, budget: int) -> Opened:
    try:
        from amplifier_core.testing import MockCoordinator
    except ImportError as problem:
        raise Unavailable(f"Amplifier modules need the kernel: {problem}; pip install amplifier-core") from problem
    coordinator: Any = MockCoordinator()
    cleanup = await mount(coordinator, dict(config))
    context = coordinator.get("context")
    if context is None:
        raise Unavailable("the module mounted no context")
    try:
        yield cast(Context, context)
    finally:
        done = cleanup() if cleanup is not None else None
        if inspect.isawaitable(done):
            await done


def _made_by(path: str) -> Callable[..., Any]:
    try:
        made = resolve_name(path)
    except (ImportError, AttributeError, ValueError) as problem:
        raise Unavailable(f"{path} cannot be loaded: {problem}") from problem
    if not callable(made):
        raise Unavailable(f"{path} is not callable: it must take a config and return a context manager")
    return cast("Callable[..., Any]", made)


def _parsed(spec: str) -> tuple[str, dict[str, Any]]:
    """Return name and config of a spec. A second part without `=` or `{` belongs to the name: `module:factory`."""
    first, _, rest = spec.partition(":")
    head, _, tail = rest.partition(":")
    if rest and not rest.startswith("{") and "=" not in head:
        first, rest = f"{first}:{head}", tail
    given = rest.removeprefix("{").removesuffix("}") if rest.startswith("{") else _EQUALS.sub(r"\1: ", rest)
    try:
        return first, dict(as_mapping(yaml.safe_load("{" + given + "}")) or {})
    except yaml.YAMLError as problem:
        raise ValueError(f"{spec}: the config is not of the form key=value,key=value") from problem
