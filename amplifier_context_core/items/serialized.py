"""Items in the results of plain kernel tools, which loops serialise before any module of a session sees them.

A loop puts `ToolResult.model_dump()` into the event ``tool:post``, which becomes JSON: an item arrives as an object of
its three fields. Its form does not differ from a tool's own JSON. But the loop still has the result at that time,
so the item itself is alive: an object is an item if a living item has the same JSON. That item is used, not the JSON,
so a payload that is no JSON keeps its type. An item that the session keeps already is no new one: a tool may show it.
Nor is one with an id that equals it, as another session of the process may hold: the pool would be the same with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from pydantic import TypeAdapter

from .item import ContextItem, living_items

_FIELDS = {"content", "description", "id"}
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def item_form_in(result: object) -> Mapping[str, object] | None:
    """Return the output of a tool's result (as ``tool:post`` has it) if it has the three fields of an item."""
    output = cast("Mapping[str, object]", result).get("output") if isinstance(result, Mapping) else None
    given: Mapping[str, object] = cast("Mapping[str, object]", output) if isinstance(output, Mapping) else {}
    return given if given.keys() == _FIELDS else None


def item_of(given: Mapping[str, object], kept: Collection[ContextItem[Any]]) -> ContextItem[Any] | None:
    """Return the item whose JSON a tool's output is; None if there is none. It takes long where payloads are large.

    `given` is from `item_form_in`, `kept` are items that are not new.
    """
    if given["id"] is not None and any(_has_form(item, given) for item in kept):
        return None
    old = set(map(id, kept))
    return next((item for item in reversed(living_items()) if id(item) not in old and _has_form(item, given)), None)


def _has_form(item: ContextItem[Any], given: Mapping[str, object]) -> bool:
    """True if the kernel's `model_dump` and its event bus make this of an item."""
    try:
        is_named = item.id == given["id"] and item.description == given["description"]
        return is_named and json.loads(json.dumps(_ANY.dump_python(item.content), default=str)) == given["content"]
    except Exception:  # noqa: BLE001 - keys that JSON has not, an object that holds itself, or a fault of its code
        return False
