"""Managers by name: as the kernel loads them, by dotted path, baselines, and peers.

| written | what it is |
| --- | --- |
| `context-simple` | the Amplifier module of that id, loaded by its entry point and mounted |
| `context-simple:target_usage=0.4,strict=true` | the same with config; values are JSON where they can be |
| `context-simple:{"ladder": ["fold", "drop"]}` | the same with config as JSON |
| `package.module:factory` | `factory(config)` returns a context manager, or is an Amplifier module's `mount` |
| `newest`, `newest-checkpointed`, `unlimited` | baselines |
| `langchain-trim`, ... | peers, see the package `peers` |
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

from ..checks.message_shapes import as_mapping
from ..replay.transcripts import Context
from .baselines import Newest, NewestCheckpointed, Unlimited
from .peers import PEERS
from .token_scale import TokenScale

GROUP = "amplifier.modules"  # entry points the kernel finds modules by
ASKING = ("context-summary",)  # modules that ask a model
PACED = "summaries by a script that extracts, two requests late; their cost is in docs/reports/evaluation.md"

BASELINES: Mapping[str, Callable[[TokenScale], Context]] = {
    "newest": Newest,
    "newest-checkpointed": NewestCheckpointed,
    "unlimited": Unlimited,
}


class Unavailable(Exception):
    """A manager is not available; the text names the reason and the next step."""


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Opened:
    """A manager for one session.

    Attributes:
        context: what messages go into and views come from.
        close: to be awaited at the end.
    """

    context: Context
    close: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True)
class Manager:
    """A kind of context manager; each session gets a new one.

    Attributes:
        label: its name in tables.
        open: makes one, given what is weighed with and the budget (tokens).
        kind: ours by the kernel's ways ("module"), "baseline" or "peer".
        note: how it is set up, for people.
        names_openai: its requests name OpenAI as their provider in any case.
    """

    label: str
    open: Callable[[TokenScale, int], Awaitable[Opened]] = field(repr=False)
    kind: str = "module"
    note: str = ""
    names_openai: bool = False


def manager(spec: str, *, label: str | None = None, config: Mapping[str, Any] | None = None) -> Manager:
    """Return the manager of a name.

    Args:
        spec: as in the table above.
        label: its name in tables; by default the spec.
        config: more config, over what the spec holds.

    Raises:
        Unavailable: there is no such manager, or a package it needs is missing.
        ValueError: its config cannot be read.
    """
    name, given = _parsed(spec)
    given.update(config or {})
    label = label or spec
    if name in BASELINES:
        _no_config(name, given)
        return Manager(label, partial(_open_baseline, BASELINES[name]), "baseline", _first_line(BASELINES[name]))
    if name in PEERS:
        _no_config(name, given)
        return _peer(name, label)
    if ":" in name:
        return Manager(label, partial(_open_made, _made_by(name), given))
    mount = mount_of(name)
    if name in ASKING:
        return Manager(label, partial(_open_paced, mount, given), note=PACED, names_openai=True)
    return Manager(label, partial(_open_module, mount, given))


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
            f"others are {', '.join([*BASELINES, *PEERS])}, or package.module:factory"
        )
    try:
        return found[0].load()
    except ImportError as problem:
        raise Unavailable(f"{name} cannot be loaded: {problem}") from problem


def _peer(name: str, label: str) -> Manager:
    peer = PEERS[name]
    try:
        module = importlib.import_module(f"{__package__}.peers.{peer.module}")
    except ImportError as problem:
        raise Unavailable(f"{name}: {problem}; pip install 'amplifier-context-testing[peers]' brings it") from problem
    return Manager(label, partial(_open_peer, module.open_peer), "peer", peer.note)


async def _open_baseline(make: Callable[[TokenScale], Context], scale: TokenScale, budget: int) -> Opened:
    return Opened(make(scale))


async def _open_peer(make: Callable[[TokenScale, int], Context], scale: TokenScale, budget: int) -> Opened:
    return Opened(make(scale, budget))


async def _open_made(make: Callable[..., Any], config: Mapping[str, Any], scale: TokenScale, budget: int) -> Opened:
    if make.__name__ == "mount":
        return await _open_module(make, config, scale, budget)
    made = make(dict(config))
    made = await made if inspect.isawaitable(made) else made
    return Opened(cast(Context, made))


async def _open_paced(mount: Callable[..., Any], config: Mapping[str, Any], scale: TokenScale, budget: int) -> Opened:
    """Open a manager that asks a model; what its summaries cost is not in the figures of `replay`."""
    from .paced import UNLIMITED, LabWriter, open_paced

    opened = await open_paced(mount, {**UNLIMITED, **config}, LabWriter(scale))
    return Opened(opened.context, opened.close)


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
        if cleanup is not None:
            done = cleanup()
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
    if not rest:
        return first, {}
    if rest.startswith("{"):
        try:
            config = as_mapping(json.loads(rest))
        except ValueError as problem:
            raise ValueError(f"{spec}: the config is not JSON: {problem}") from problem
        return first, dict(config or {})
    given: dict[str, Any] = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{spec}: {pair!r} is not key=value")
        try:
            given[key.strip()] = json.loads(value)
        except ValueError:
            given[key.strip()] = value
    return first, given


def _no_config(name: str, given: Mapping[str, Any]) -> None:
    if given:
        raise ValueError(f"{name} takes no config, got {', '.join(given)}")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
