"""Items in the results of plain kernel tools, which loops serialise before any module of a session sees them.

A loop puts `ToolResult.model_dump()` into the event ``tool:post``, which becomes JSON: an item arrives as an object of
its three fields. Its form does not differ from a tool's own JSON. But the loop still has the result at that time,
so the item itself is alive: an object is an item if a living item has the same JSON. That item is used, not the JSON,
so a payload that is no JSON keeps its type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import TypeAdapter

from .item import ContextItem, living_items

_FIELDS = {"content", "description", "id"}
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def item_in(result: object) -> ContextItem[Any] | None:
    """Return the item that a tool's result carries; None if it carries none.

    Args:
        result: as ``tool:post`` has it: the fields of a kernel's `ToolResult`.
    """
    output = cast("Mapping[str, object]", result).get("output") if isinstance(result, Mapping) else None
    if not isinstance(output, Mapping):
        return None
    given = cast("Mapping[str, object]", output)
    if set(given) != _FIELDS:
        return None
    for item in reversed(living_items()):
        if item.id == given["id"] and item.description == given["description"] and _as_json(item) == given:
            return item
    return None


def _as_json(item: ContextItem[Any]) -> object:
    """Return an item as the kernel's `model_dump` and its event bus make it JSON; None if they cannot."""
    try:
        return json.loads(json.dumps(_ANY.dump_python(item), default=str))
    except Exception:  # noqa: BLE001 - keys that JSON has not, an object that holds itself, or a fault of its own code
        return None
