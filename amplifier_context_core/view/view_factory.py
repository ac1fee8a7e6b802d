"""How a session makes its views: as its settings demand, from the start of the history or from a checkpoint.

The checkpoint may be of another session with the same history. `ViewFactory.compatibility_key` says for which settings
and counters a checkpoint may be used again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from ..compaction.checkpoint import Checkpoint
from ..compaction.distant import DistantHistory
from ..compaction.strategies import Strategy
from ..config import Config
from ..economics.trigger import CompactionBackoff, TokenLimits
from ..futures import in_thread
from ..messages.hashing import chain_hash, content_hash
from ..messages.tokens import TokenCounter
from ..rendering.renderer import Renderer
from ..transcript.transcript import Snapshot
from . import shared_cache
from .candidate import ViewRequest
from .directions import Directions
from .view import View

MIN_BUDGET_RATIO = 0.8  # of a budget: a view made for at least that much may serve it
_MIN_OUTPUT = 64  # tokens a tool output may always show
_NOT_SHOWN = {  # settings
    "max_tokens",
    "strict",
    "strict_config",
    "on_interrupt",
    "on_conflict",
    "search_index",
    "embedder",
    "cache_ttl",
    "recall_share",
    "pool_limit",
    "queue_limit",
}
# Settings that stored sessions may not know: at their default they are no part of the key.
_ADDED = {"fewer_line_numbers", "offload_above", "state_tools"}


def settings_in(key: str) -> dict[str, Any]:
    """Return the settings that a compatibility key names; empty if it is none."""
    for found in re.finditer(r" (?=\{)", key):
        try:
            settings: object = json.loads(key[found.end() :])
        except ValueError:
            continue  # a bracket in the name of a counter or of a strategy
        if isinstance(settings, dict):
            return cast("dict[str, Any]", settings)
    return {}


class ViewFactory:
    """`ladder` is part of `compatibility_key`."""

    def __init__(self, config: Config, ladder: Sequence[Strategy], directions: Directions) -> None:
        self._config = config
        self.directions = directions
        self.beginning: DistantHistory | None = None  # all before the end of the gap, if the history was read up to it
        # Core's own keys only: a module's own keys may hold a URL with a password.
        unset = {name for name in _ADDED if getattr(config, name) == Config.model_fields[name].default}
        shown = set(Config.model_fields) - _NOT_SHOWN - unset
        self._settings = f"{ladder!r} {config.model_dump_json(include=shown)}"

    def compatibility_key(self, counter: TokenCounter) -> str:
        """Return what must be the same for a checkpoint to be reused: how tokens are counted and rounds are shown."""
        return f"{counter!r} {self._settings}"

    def for_limits(self, checkpoint: Checkpoint | None, limits: TokenLimits, counter: TokenCounter) -> View:
        output_limit = max(_MIN_OUTPUT, int(limits.capacity * self._config.output_share))
        return self.view(checkpoint, limits.budget, output_limit, counter)

    def view(self, checkpoint: Checkpoint | None, budget: int, output_limit: int, counter: TokenCounter) -> View:
        """`output_limit`: tokens above which a single tool output is clipped."""
        renderer = Renderer(
            counter,
            output_limit,
            output_bytes=self._config.max_tool_result_bytes,
            summaries=self.directions.short_forms.at_once,
            tables=self._config.json_tables,
            fewer_line_numbers=self._config.fewer_line_numbers,
            # Of the saved limit, so that a resumed view shows each output as it did.
            offload_limit=int(output_limit * self._config.offload_above / self._config.output_share),
        )
        return View(checkpoint, budget, renderer, self.beginning or DistantHistory(self.directions.pins))

    async def of_history(self, history: Snapshot, interrupted: frozenset[int], request: ViewRequest) -> View:
        """Return a view of this history, from its start or from a checkpoint of another session with the same one.

        Raises `NotLoaded`: it needs an entry that is only in the store.
        """
        limits, counter = request.limits, request.counter
        checkpoint = backoff = None
        if not shared_cache.is_empty() and sum(entry.tokens for entry in history[-5_000:]) > limits.threshold:
            checkpoint, backoff = await in_thread(self._inherited, history, limits, counter)
        view = self.for_limits(checkpoint, limits, counter)
        view.backoff = backoff
        await view.update(history, len(history), interrupted)
        for seq in self.directions.pins:  # a checkpoint of another session knows nothing of them
            await view.show_verbatim(seq, history)
        return view

    def _inherited(
        self, history: Snapshot, limits: TokenLimits, counter: TokenCounter
    ) -> tuple[Checkpoint | None, CompactionBackoff | None]:
        (known, digest), best = self.for_limits(None, limits, counter).hashed(history), None
        key = self.compatibility_key(counter)
        for covered, entry in enumerate(history[history.leading_count + known :], start=known + 1):
            digest = chain_hash(digest, entry.seq, content_hash(entry.message))
            # The marks of the checkpoint are right: seqs are in the hash.
            if (found := shared_cache.get(key, digest)) is not None and found[0].covered == covered:
                is_large_enough = found[0].budget >= MIN_BUDGET_RATIO * limits.budget
                best = found if is_large_enough and found[0].tokens <= limits.threshold else best
        return best or (None, None)
