"""The token counter of a session, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ..config import Config
from ..errors import ConfigError
from ..messages.tokens import TokenCounter, approx_token_counter, guarded, load_counter, start_loading
from ..plugins import Plugins

_VOCABULARIES = frozenset({"o200k_base", "cl100k_base"})


class SessionCounter:
    """The token counter of a session: a given one, or what `Config.token_counter` names. Raises `ConfigError`: nothing
    has that name, or it is no counter.
    """

    def __init__(
        self, config: Config, plugins: Plugins, report_fault: Callable[[str], None], given: TokenCounter | None
    ) -> None:
        self._name = config.token_counter
        counter = given or _named_counter(self._name, plugins)
        self.loaded = counter and guarded(counter, report_fault)

    @property
    def is_exact(self) -> bool:
        return bool(getattr(self.loaded, "exact", False))

    async def __call__(self) -> TokenCounter:
        if self.loaded is None:
            self.loaded = await load_counter(self._name)
        return self.loaded

    def start_loading(self) -> None:
        """Load the vocabulary in a thread, if this needs no download, so that the first count does not wait for it."""
        if self.loaded is None:
            start_loading(self._name)


def _named_counter(name: str, plugins: Plugins) -> TokenCounter | None:
    """Return None for a vocabulary, which is loaded on first use."""
    if name in _VOCABULARIES:
        return None
    if name == "heuristic":
        return approx_token_counter
    known = ("heuristic", *_VOCABULARIES)
    made = plugins.make_offered("amplifier_context_token_counters", name, "token_counter", known)
    if not callable(made):
        raise ConfigError("token_counter", f"{name!r} made a {type(made).__name__}, not a counter")
    return cast(TokenCounter, made)
