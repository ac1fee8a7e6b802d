"""Microsoft agent-framework's `ContextWindowCompactionStrategy`: collapse old tool calls, then truncate."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from agent_framework import ContextWindowCompactionStrategy

from ..token_scale import TokenScale
from .agent_framework_truncation import Compacted, Tokenizer


def open_peer(scale: TokenScale, budget: int) -> Compacted:
    """Return the adapter for one session."""
    strategy = ContextWindowCompactionStrategy(
        max_context_window_tokens=budget, max_output_tokens=0, tokenizer=Tokenizer(scale)
    )
    return Compacted(scale, strategy)
