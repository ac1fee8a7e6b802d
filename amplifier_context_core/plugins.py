"""Plug-in points (pluggy, project name and entry-point group `amplifier_context`).

A package adds strategies, token counters, stores, search indexes or embedders by name, or observes a history.
Observers are synchronous, should be fast, and cannot veto. One that fails is named in the log and changes nothing.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pluggy

from .errors import ConfigError, PluginError
from .failures import Report, failure

PROJECT = "amplifier_context"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

log = logging.getLogger(__name__)

Factory = Callable[..., Any]


class Specification:
    """The plug-in points. Implement any of them, marked with `hookimpl`.

    The values are of higher layers, which this module must not import: their types are named in words.
    """

    @hookspec
    def amplifier_context_strategies(self) -> Mapping[str, Factory]:  # pyright: ignore[reportReturnType]
        """Return makers of a `Strategy` by its name in a `ladder`; each is called with the config's arguments."""

    @hookspec
    def amplifier_context_token_counters(self) -> Mapping[str, Factory]:  # pyright: ignore[reportReturnType]
        """Return makers of a `TokenCounter` by its name in `token_counter`; each is called without arguments."""

    @hookspec
    def amplifier_context_stores(self) -> Mapping[str, Factory]:  # pyright: ignore[reportReturnType]
        """Return makers of a `Store` by the scheme of its URL; each is called with the whole URL as `url`.

        A maker with a parameter `durability` or `archive` also gets that setting.
        """

    @hookspec
    def amplifier_context_search_indexes(self) -> Mapping[str, Factory]:  # pyright: ignore[reportReturnType]
        """Return makers of a `SearchIndex` by its name in `search_index`; each is called without arguments."""

    @hookspec
    def amplifier_context_embedders(self) -> Mapping[str, Factory]:  # pyright: ignore[reportReturnType]
        """Return makers of an `Embedder` by its name in `embedder`; each is called without arguments."""

    @hookspec
    def amplifier_context_appended(self, session_id: str, entry: Any) -> None:
        """Observe an `Entry` that became part of the history."""

    @hookspec
    def amplifier_context_cleared(self, session_id: str) -> None:
        """Observe that the history was cleared."""

    @hookspec
    def amplifier_context_folded(self, session_id: str, report: Mapping[str, Any]) -> None:
        """Observe an accepted compaction; `report` is the payload of ``context:post_compact``."""


class Plugins:
    """The plug-ins of one process, or of one test."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(Specification)
        self._reported: set[str] = set()  # each failing offer once: it is called again for each name that is looked up

    def register(self, plugin: object, name: str | None = None) -> None:
        """Raises `PluginError`: the plug-in does not implement the points as specified, or is a class."""
        if reason := self._not_called(plugin):
            raise PluginError(f"plug-in {name or plugin!r} cannot be registered: {reason}")
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as problem:
            if isinstance(problem, pluggy.PluginValidationError) and self._manager.is_registered(plugin):
                self._manager.unregister(plugin)  # its fault would otherwise be found again with every later plug-in
            raise PluginError(f"plug-in {name or plugin!r} cannot be registered: {problem}") from problem

    def _not_called(self, plugin: object) -> str:
        """Return why functions of a plug-in would never be called, which pluggy accepts in silence; else nothing."""
        if isinstance(plugin, type):
            return "it is a class; give an object of it"
        points = (point for point in vars(Specification) if point.startswith(PROJECT) and hasattr(plugin, point))
        unmarked = [point for point in points if self._manager.parse_hookimpl_opts(plugin, point) is None]
        return f"{unmarked[0]} is not marked with `hookimpl`" if unmarked else ""

    def load_installed(self) -> None:
        """Add the plug-ins of installed packages. One that fails to load is named in the log and left out."""
        for entry_point in importlib.metadata.entry_points(group=PROJECT):
            if self._manager.has_plugin(entry_point.name):
                continue
            try:
                self.register(entry_point.load(), entry_point.name)
            except Exception as problem:  # noqa: BLE001 - other people's code: named, and left out
                # An error of loading quotes no message: no session has begun.
                log.warning(
                    "plug-in %s (%s) is left out: it %s: %s",
                    entry_point.name,
                    entry_point.value,
                    failure(problem, None),
                    problem,
                )

    def find(self, point: str, name: str) -> tuple[str, Callable[..., Any]] | None:
        """Return the name of a plug-in and its offer under a name at a point. The last registered plug-in wins."""
        for plugin, offers in self._offers(point):
            if name in offers:
                return plugin, offers[name]
        return None

    def make(
        self, point: str, name: str, key: str, builtin: Mapping[str, Callable[..., Any]], /, **arguments: Any
    ) -> Any:
        """Build the object that the config names: built in, or a plug-in's. `key`: config key that asked, for errors.
        Raises `ConfigError`: no plug-in offers that name, or the arguments do not fit; `PluginError`: the plug-in that
        offers it failed.
        """
        if name not in builtin:
            return self.make_offered(point, name, key, builtin, **arguments)
        try:
            return builtin[name](**arguments)
        except TypeError as problem:
            raise ConfigError(key, f"{name!r}: {problem}; {_arguments_of(builtin[name])}") from problem
        except ValueError as problem:
            raise ConfigError(key, f"{name!r}: {problem}") from problem

    def make_offered(self, point: str, name: str, key: str, known: Iterable[str], /, **arguments: Any) -> Any:
        """Build the object that a plug-in offers under a name; `known` are the names of core, for the error. It raises
        as `make` does.
        """
        offer = self.find(point, name)
        if offer is None:
            names = sorted({*known, *(offered for _, offers in self._offers(point) for offered in offers)})
            known_are = f"known are {', '.join(names)}" if names else "no plug-in offers one"
            raise ConfigError(key, f"{name!r} is not known; {known_are}")
        plugin, build = offer
        try:
            return build(**arguments)
        except ConfigError:
            raise
        except Exception as problem:
            # For a store only the type: the text may hold the URL, and the URL a password.
            reason = type(problem).__name__ if key == "store" else problem
            raise PluginError(f"{key}: plug-in {plugin} failed to make {name!r}: {reason}") from problem

    def implementations(self, point: str) -> list[tuple[str, Callable[..., None], tuple[str, ...]]]:
        """Return name, function and argument names of each plug-in that implements a point."""
        found = getattr(self._manager.hook, point).get_hookimpls()
        return [(one.plugin_name, one.function, tuple(one.argnames)) for one in found]

    def _offers(self, point: str) -> list[tuple[str, Mapping[str, Callable[..., Any]]]]:
        offers: list[tuple[str, Mapping[str, Callable[..., Any]]]] = []
        for implementation in reversed(getattr(self._manager.hook, point).get_hookimpls()):
            try:
                offered = implementation.function()
            except Exception as problem:  # noqa: BLE001 - other people's code: named, and left out
                reason = failure(problem, implementation.function)
                text = f"plug-in {implementation.plugin_name}: {point} {reason}"
                if text not in self._reported:
                    self._reported.add(text)
                    log.warning("%s", text)
                continue
            if isinstance(offered, Mapping):
                offers.append((implementation.plugin_name, cast("Mapping[str, Callable[..., Any]]", offered)))
        return offers


class Observers:
    """The plug-ins that observe one session."""

    def __init__(self, plugins: Plugins, report: Report) -> None:
        self._plugins = plugins
        self._report = report

    def watch(self, point: str) -> bool:
        return bool(self._plugins.implementations(point))

    def notify(self, point: str, **data: Any) -> None:
        """A failure is reported and changes nothing."""
        for name, function, arguments in self._plugins.implementations(point):
            try:
                function(*(data[argument] for argument in arguments))
            except Exception as problem:  # noqa: BLE001 - other people's code: reported
                self._report(f"{point} of plug-in {name} {failure(problem, function)}; history is not affected")


def _arguments_of(build: Factory) -> str:
    """Return which arguments a maker takes, with their defaults, for an error."""
    taken = inspect.signature(build).parameters.values()
    named = [one for one in taken if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    shown = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in named]
    return f"it takes {', '.join(shown) or 'no arguments'}"


_installed: Plugins | None = None
_loading = threading.Lock()


def installed_plugins() -> Plugins:
    """Loaded once per process."""
    global _installed
    with _loading:
        if _installed is None:
            plugins = Plugins()
            plugins.load_installed()
            _installed = plugins
        return _installed
