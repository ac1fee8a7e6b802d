"""Other people's context managers, run by their own code. One adapter a file; each has `open_peer(scale, budget)`.

An adapter converts recorded messages to the peer's, asks the peer, and converts the result back; it repairs nothing.
Settings are the peer's defaults; a default in tokens of a 200k window is scaled to the budget. Every peer
counts with the exact counter. If a peer leaves it to its user whether a cut is kept, it is kept: cutting again for
each request costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    Attributes:
        module: of this package; importing it imports the peer.
        note: what of the peer is run, and how it is set.
    """

    module: str
    note: str


PEERS: Mapping[str, Peer] = {
    "langchain-trim": Peer(
        "langchain_trim",
        'trim_messages(strategy="last", start_on="human", include_system=True) to half of an outgrown budget',
    ),
    "langchain-edit": Peer(
        "langchain_edit",
        "ClearToolUsesEdit, trigger half of the budget (100k of 200k), keep 3; then trim_messages to the budget",
    ),
    "agent-framework-truncation": Peer(
        "agent_framework_truncation",
        "TruncationStrategy at 0.8 of the budget to 0.5, as ContextWindowCompactionStrategy sets it by default",
    ),
    "agent-framework-window": Peer(
        "agent_framework_window", "ContextWindowCompactionStrategy with its defaults (0.5, 0.8, keep 4)"
    ),
    "pydantic-ai-tiered": Peer(
        "pydantic_ai_tiered",
        "TieredCompaction to 0.8 of the budget: clamp, clear results (keep 3), sliding window (half)",
    ),
    "llamaindex-memory": Peer(
        "llamaindex_memory", "Memory.from_defaults(token_limit=budget less system prompt), chat_history_token_ratio 0.7"
    ),
}
