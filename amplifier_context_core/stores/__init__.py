"""Stores: where histories are kept. See `protocol` for what a store is, and `open_store` for how one is named.

A store of a plug-in takes from here what all stores share: the checks with their errors, and how an entry is written
down. docs/extending.md shows one.
"""

from __future__ import annotations

from .addresses import open_store
from .checks import check_session_id, check_within, no_session, session_exists
from .memory_store import MemoryStore
from .protocol import (
    UNCOUNTED,
    Checkable,
    Durability,
    Extent,
    OnRepair,
    Repair,
    Repairable,
    Searchable,
    SessionInfo,
    Store,
    places,
)
from .rows import entry_of, extra_of, message_json
from .slices import slices

__all__ = [
    "UNCOUNTED",
    "Checkable",
    "Durability",
    "Extent",
    "MemoryStore",
    "OnRepair",
    "Repair",
    "Repairable",
    "Searchable",
    "SessionInfo",
    "Store",
    "check_session_id",
    "check_within",
    "entry_of",
    "extra_of",
    "message_json",
    "no_session",
    "open_store",
    "places",
    "session_exists",
    "slices",
]
