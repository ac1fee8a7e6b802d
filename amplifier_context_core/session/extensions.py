"""The parts of a session that its config names, core's own or a plug-in's: token counter, search index, embedder."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import cast

from ..config import Config
from ..errors import ConfigError, install_command
from ..messages.tokens import TokenCounter, approx_token_counter
from ..plugins import Plugins
from ..stores.word_index import WordIndex
from ..transcript.search import GuardedIndex, ScanIndex, SearchIndex
from ..transcript.vectors import Embedder

_VOCABULARIES = frozenset({"o200k_base", "cl100k_base"})


def named_counter(config: Config, plugins: Plugins) -> TokenCounter | None:
    """Return None for a vocabulary, which is loaded on first use. Raises `ConfigError`: nothing has that name, or it is
    not a counter.
    """
    name = config.token_counter
    if name in _VOCABULARIES:
        return None
    if name == "heuristic":
        return approx_token_counter
    known = ("heuristic", *_VOCABULARIES)
    made = plugins.make_offered("amplifier_context_token_counters", name, "token_counter", known)
    if not callable(made):
        raise ConfigError("token_counter", f"{name!r} made a {type(made).__name__}, not a counter")
    return cast(TokenCounter, made)


def named_index(
    config: Config, plugins: Plugins, report_fault: Callable[[str], None]
) -> ScanIndex | WordIndex | GuardedIndex:
    """`report_fault` is called with the text of a plug-in's fault. Raises `ConfigError`: nothing has that name, or it
    is not a search index.
    """
    name = config.search_index
    if name == "auto":
        return WordIndex()
    if name == "scan":
        return ScanIndex()
    made = plugins.make_offered("amplifier_context_search_indexes", name, "search_index", ("auto", "scan"))
    if not isinstance(made, SearchIndex):
        raise ConfigError("search_index", f"{name!r} made a {type(made).__name__}, not a search index")
    return GuardedIndex(made, name, report_fault)


def named_embedder(config: Config, plugins: Plugins) -> Embedder | None:
    """Return None if the config names none. Raises `ConfigError`: nothing has that name, it is not an embedder, or
    numpy is missing.
    """
    name = config.embedder
    if name is None:
        return None
    made = plugins.make_offered("amplifier_context_embedders", name, "embedder", ())
    if not isinstance(made, Embedder) or made.dimensions.__class__ is not int or made.dimensions < 1:
        raise ConfigError("embedder", f"{name!r} made a {type(made).__name__}, not an embedder")
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError("embedder", f"needs numpy: {install_command('vectors')}")
    return made
