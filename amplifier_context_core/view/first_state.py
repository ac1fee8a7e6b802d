"""The session state of version 1, which sessions of commit 37ba2a6 have, under the keys of today.

In version 1 a field that was renamed kept its first name as its key. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

# By the key of today of an object (the state has none): its keys of version 1, and those of today.
_KEYS = {
    "": "kind=compatibility_key body=leading_count start=tail_start covered=covered_count lines=views "
    "serving=by_budget summaries=short_forms awaited=pending_summaries warned=warnings_sent starts=uncompacted_views",
    "views": "attempt=backoff",
    "checkpoint": "pieces=segments",
    "segments": "before=original_tokens floor=protected_because",
    "shown": "answers=stored_call_id",
    "chapter": "lines=entries before=original_tokens",
    "entries": "before=original_tokens",
    "beside": "before=original_tokens",
    "facts": "head=subject worth=scores said=sentences",
    "backoff": "room=capacity until=retry_at_tokens coverable=compactable_count stuck=infeasible",
    "erased": "calls=call_ids answers=answered_ids",
    "uncompacted_views": "serving=served_budget attempt=backoff",
}
_RENAMED = {name: dict(pair.split("=") for pair in pairs.split()) for name, pairs in _KEYS.items()}


def from_version_1(state: Mapping[str, Any]) -> dict[str, Any]:
    """What makes no sense stays for its reader to refuse."""
    return {**_renamed(state, ""), "version": 2}


def _renamed(value: Any, name: str) -> Any:
    if name not in _RENAMED:
        return value
    if isinstance(value, list):
        return [_renamed(one, name) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    keys = ((_RENAMED[name].get(key, key), one) for key, one in cast("dict[str, Any]", value).items())
    return {key: _renamed(one, key) for key, one in keys}
