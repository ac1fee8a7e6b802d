"""The session state of version 1, which sessions of commit 37ba2a6 have, under the keys of today.

In version 1 a field that was renamed kept its first name as its key. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_Keys = Mapping[str, "tuple[str, _Keys]"]  # by key of version 1: the key of today, and the keys below it

_NONE: _Keys = {}
_FACT: _Keys = {"head": ("subject", _NONE), "worth": ("scores", _NONE), "said": ("sentences", _NONE)}
_ENTRY: _Keys = {"facts": ("facts", _FACT), "before": ("original_tokens", _NONE)}
_CHAPTER: _Keys = {"lines": ("entries", _ENTRY), "beside": ("beside", _ENTRY), "before": ("original_tokens", _NONE)}
_SEGMENT: _Keys = {
    "shown": ("shown", {"answers": ("stored_call_id", _NONE)}),
    "before": ("original_tokens", _NONE),
    "chapter": ("chapter", _CHAPTER),
    "floor": ("protected_because", _NONE),
}
_BACKOFF: _Keys = {
    "room": ("capacity", _NONE),
    "until": ("retry_at_tokens", _NONE),
    "coverable": ("compactable_count", _NONE),
    "stuck": ("infeasible", _NONE),
}
_VIEW: _Keys = {"checkpoint": ("checkpoint", {"pieces": ("segments", _SEGMENT)}), "attempt": ("backoff", _BACKOFF)}
_STATE: _Keys = {
    "kind": ("compatibility_key", _NONE),
    "body": ("leading_count", _NONE),
    "start": ("tail_start", _NONE),
    "covered": ("covered_count", _NONE),
    "lines": ("views", _VIEW),
    "serving": ("by_budget", _NONE),
    "summaries": ("short_forms", _NONE),
    "awaited": ("pending_summaries", _NONE),
    "warned": ("warnings_sent", _NONE),
    "erased": ("erased", {"calls": ("call_ids", _NONE), "answers": ("answered_ids", _NONE)}),
    "starts": ("uncompacted_views", {"serving": ("served_budget", _NONE), "attempt": ("backoff", _BACKOFF)}),
}


def from_version_1(state: Mapping[str, Any]) -> dict[str, Any]:
    """What makes no sense stays for its reader to refuse."""
    return {**_renamed(state, _STATE), "version": 2}


def _renamed(value: Any, keys: _Keys) -> Any:
    if isinstance(value, list):
        return [_renamed(one, keys) for one in cast("list[Any]", value)]
    if not keys or not isinstance(value, dict):
        return value
    found = ((*keys.get(name, (name, _NONE)), one) for name, one in cast("dict[str, Any]", value).items())
    return {name: _renamed(one, below) if below else one for name, below, one in found}
