"""The token counter of a session, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable

from ..config import Config
from ..messages.tokens import TokenCounter, guarded, load_counter, start_loading
from ..plugins import Plugins
from .extensions import named_counter


class SessionCounter:
    """The token counter of a session: a given one, or what `Config.token_counter` names.

    Args:
        report_fault: called with the text of a fault of a counter that is not core's.

    Raises:
        ConfigError: nothing has the name in the config, or it is no counter.
    """

    def __init__(
        self, config: Config, plugins: Plugins, report_fault: Callable[[str], None], given: TokenCounter | None
    ) -> None:
        self._name = config.token_counter
        counter = given or named_counter(config, plugins)
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
