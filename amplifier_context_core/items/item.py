"""One item: a payload of any type, perhaps with an id and a description by which it is selected.

It is also recognised in the result of a plain tool. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast
from weakref import WeakValueDictionary

from pydantic import TypeAdapter
from typing_extensions import TypeVar

KEPT = "Kept in the pool: "  # what a model reads in place of an item; its label follows
id_of = id  # an item has a field of this name
_FIELDS = {"content", "description", "id"}
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
T_co = TypeVar("T_co", covariant=True, default=Any)


@dataclass(frozen=True)
class ContextItem(Generic[T_co]):
    """An item. It never changes; two items with the same fields are equal."""

    content: T_co  # the payload
    description: str | None = None  # a short summary, by which an item of a pool is selected
    id: str | None = None  # its key in a pool. An item without one belongs in a queue

    def __post_init__(self) -> None:
        _living[id_of(self)] = self

    def to_dict(self) -> dict[str, Any]:
        """The payload is not copied."""
        return {"id": self.id, "description": self.description, "content": self.content}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContextItem[Any]:
        """Read what `to_dict` wrote; raise `KeyError` if there is no ``content``."""
        return ContextItem(data["content"], data.get("description"), data.get("id"))


def readable_text(value: object) -> str | None:
    """Return None if no text can be made: the payload nests too deeply, say, or its own code raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - `__str__` is other people's code
        return None


def payload_text(value: object) -> str:
    """If no text can be made, it is the name of the type."""
    text = readable_text(value)
    return type(value).__name__ if text is None else text


def label_of(item: ContextItem[Any]) -> str:
    """As lists show an item of a pool."""
    return f"[{payload_text(item.id)}] {payload_text(item.description)}"


_living: WeakValueDictionary[int, ContextItem[Any]] = WeakValueDictionary()


def living_items() -> list[ContextItem[Any]]:
    """Return the items of this process that something still refers to, oldest first."""
    # Tools make items in threads. Unlike `values`, this list is made in one step.
    return [item for living in _living.valuerefs() if (item := living()) is not None]


def item_form_in(result: object) -> Mapping[str, object] | None:
    """Return the output of a tool's result (as ``tool:post`` has it) if it has the three fields of an item."""
    output = cast("Mapping[str, object]", result).get("output") if isinstance(result, Mapping) else None
    given: Mapping[str, object] = cast("Mapping[str, object]", output) if isinstance(output, Mapping) else {}
    return given if given.keys() == _FIELDS else None


def item_of(given: Mapping[str, object], kept: Collection[ContextItem[Any]]) -> ContextItem[Any] | None:
    """Return the item that a plain kernel tool returned; None if there is none. It takes long where payloads are large.

    Loops serialise results before any module of a session sees them: `ToolResult.model_dump()` in the event
    ``tool:post`` becomes JSON, and does not differ from a tool's own JSON. But the loop still has the result at that
    time, so the item itself is alive: an object is an item if a living item has the same JSON. That item is used, not
    the JSON, so a payload that is no JSON keeps its type. An item that the session keeps already is no new one: a tool
    may show it. Nor is one with an id that equals it, as another session of the process may hold: the pool would be the
    same with it.

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
