"""One item: a payload of any type, perhaps with an id and a description by which it is selected.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic
from weakref import WeakValueDictionary

from typing_extensions import TypeVar

KEPT = "Kept in the pool: "  # what a model reads in place of an item; its label follows
id_of = id  # an item has a field of this name
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
