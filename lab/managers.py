"""Managers by name: as the kernel loads them, by dotted path, the unlimited window, and peers.

| written | what it is |
| --- | --- |
| `context-simple` | the Amplifier module of that id, loaded by its entry point and mounted; there is no model to ask |
| `context-simple:target_usage=0.4,strict=true` | the same with config; values are JSON where they can be |
| `context-simple:{"ladder": ["fold", "drop"]}` | the same with config as JSON |
| `package.module:factory` | `factory(config)` returns a context manager, or is an Amplifier module's `mount` |
| `unlimited` | the whole history, whatever the budget: the price of never compacting |
| `pydantic-ai-tiered` | a peer: its own code with its defaults; a cut is kept, since cutting again costs more |
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from typing import Any, cast

from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, as_mapping
from amplifier_context_testing.fakes import ListContext
from amplifier_context_testing.replay.transcripts import Context

GROUP = "amplifier.modules"  # entry points the kernel finds modules by
TIERED = "TieredCompaction to 0.8 of the budget: clamp, clear results (keep 3), sliding window (half)"
PEERS = ("unlimited", "pydantic-ai-tiered")


class Unavailable(Exception):
    """A manager is not available; the text names the reason and the next step."""


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Opened:
    """A manager for one session; `close` is awaited at the end."""

    context: Context
    close: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True)
class Manager:
    """A kind of context manager; each session gets a new one.

    Attributes:
        open: makes one, given what is weighed with and the budget (tokens).
        reads_provider: its views may depend on the provider that a request names.
    """

    label: str
    open: Callable[[TokenScale, int], Awaitable[Opened]] = field(repr=False)
    note: str = ""
    reads_provider: bool = True


def manager(spec: str, *, label: str | None = None, config: Mapping[str, Any] | None = None) -> Manager:
    """Return the manager of a name, as in the table above; `config` goes over what the spec holds.

    Raises:
        Unavailable: there is no such manager, or a package it needs is missing.
        ValueError: its config cannot be read.
    """
    name, given = _parsed(spec)
    given.update(config or {})
    label = label or spec
    if name in PEERS and given:
        raise ValueError(f"{name} takes no config, got {', '.join(given)}")
    if name == "unlimited":
        return Manager(label, _open_unlimited, "the whole history", reads_provider=False)
    if name in PEERS:
        return Manager(label, partial(_open_peer, _peer(name)), TIERED, reads_provider=False)
    if ":" in name:
        return Manager(label, partial(_open_made, _made_by(name), given))
    return Manager(label, partial(_open_module, mount_of(name), given))


def mount_of(name: str) -> Callable[..., Any]:
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


async def _open_unlimited(scale: TokenScale, budget: int) -> Opened:
    return Opened(_Unlimited())


def _peer(name: str) -> Callable[[TokenScale, int], Context]:
    try:
        return importlib.import_module(f".{name.replace('-', '_')}", __package__).open_peer
    except ImportError as problem:
        raise Unavailable(f"{name}: {problem}; pip install 'pydantic-ai-harness>=0.62' brings it") from problem


async def _open_peer(make: Callable[[TokenScale, int], Context], scale: TokenScale, budget: int) -> Opened:
    return Opened(make(scale, budget))


async def _open_made(make: Callable[..., Any], config: Mapping[str, Any], scale: TokenScale, budget: int) -> Opened:
    if make.__name__ == "mount":
        return await _open_module(make, config, scale, budget)
    made = make(dict(config))
    return Opened(cast(Context, await made if inspect.isawaitable(made) else made))


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

    async def close() -> None:
        done = cleanup() if cleanup is not None else None
        if inspect.isawaitable(done):
            await done

    return Opened(cast(Context, context), close)


def _made_by(path: str) -> Callable[..., Any]:
    module_name, _, attribute = path.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as problem:
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
    if rest.startswith("{"):
        try:
            return first, dict(as_mapping(json.loads(rest)) or {})
        except ValueError as problem:
            raise ValueError(f"{spec}: the config is not JSON: {problem}") from problem
    given: dict[str, Any] = {}
    for pair in rest.split(",") if rest else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{spec}: {pair!r} is not key=value")
        try:
            given[key.strip()] = json.loads(value)
        except ValueError:
            given[key.strip()] = value
    return first, given
