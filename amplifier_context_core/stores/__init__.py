"""Stores keep histories. `protocol` defines what a store is, and `open_store` opens one by its URL.

A plug-in's store imports from here what all stores share: the checks with their errors, and the codec of entries.
examples/store shows one.
"""

from __future__ import annotations

from .codec import decode_entry, encode_extra, message_json
from .memory_store import MemoryStore
from .protocol import (
    UNCOUNTED,
    Checkable,
    Durability,
    Extent,
    KeepsVectors,
    KeptVector,
    OnRepair,
    Repair,
    Repairable,
    Searchable,
    SessionInfo,
    Store,
    index_range,
    read_in_batches,
)
from .registry import open_store
from .validation import check_index, check_session_id, no_session, session_exists

__all__ = [
    "UNCOUNTED",
    "Checkable",
    "Durability",
    "Extent",
    "KeepsVectors",
    "KeptVector",
    "MemoryStore",
    "OnRepair",
    "Repair",
    "Repairable",
    "Searchable",
    "SessionInfo",
    "Store",
    "check_index",
    "check_session_id",
    "decode_entry",
    "encode_extra",
    "index_range",
    "message_json",
    "no_session",
    "open_store",
    "read_in_batches",
    "session_exists",
]
