"""Stores: where histories are kept. See `protocol` for what a store is, and `open_store` for how one is named."""

from __future__ import annotations

from .addresses import open_store
from .memory_store import MemoryStore
from .protocol import (
    UNCOUNTED,
    Checkable,
    Durability,
    Extent,
    OnRepair,
    Repair,
    Searchable,
    SessionInfo,
    Store,
    places,
)
from .slices import slices

__all__ = [
    "UNCOUNTED",
    "Checkable",
    "Durability",
    "Extent",
    "MemoryStore",
    "OnRepair",
    "Repair",
    "Searchable",
    "SessionInfo",
    "Store",
    "open_store",
    "places",
    "slices",
]
