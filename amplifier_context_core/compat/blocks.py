"""Typed content blocks, like those of other frameworks, and their JSON.

A block is a frozen value. `to_dict` returns the form that the core stores and can send to every provider, and refuses a
block that would not be read as it is. `from_dict` reads that form, and the spellings of Anthropic, OpenAI and the
kernel. Keys without a field are kept in `extra`. What has no typed form (thinking, a document, an image by its URL, a
malformed block) is an `OtherBlock`. So no data is lost. Pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeGuard, cast, get_args

from ..errors import InvalidMessage
from ..messages.media import split_data_uri
from ..messages.parsing import CALL_BLOCKS, block_answers, copy_checked, copy_json, json_text

MediaType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]


class ContentBlock(ABC):
    """A part of a message. Its kinds are text, image, tool use, tool result, and other."""

    __slots__ = ()

    @abstractmethod
    def as_raw(self) -> dict[str, Any]:
        """Return its JSON, not checked."""

    def to_dict(self) -> dict[str, Any]:
        """Return its JSON; the caller may change it. Raises `InvalidMessage`: a field is malformed; it is named if one
        alone is.
        """
        raw = _checked(self.as_raw())
        found = read_block(raw)
        if isinstance(self, TypedBlock) and found != self:
            wrong = [one.name for one in fields(self) if getattr(self, one.name) != getattr(found, one.name, None)]
            raise InvalidMessage(wrong[0] if len(wrong) == 1 else "block", f"makes no {type(self).__name__}")
        return raw


@dataclass(frozen=True, slots=True)
class TypedBlock(ContentBlock):
    """A block with fields."""

    keys: ClassVar[frozenset[str]]  # that a field is read from, in any spelling
    _type: ClassVar[str]
    # JSON data under keys without a field, e.g. ``cache_control``.
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, repr=False, hash=False)

    def as_raw(self) -> dict[str, Any]:
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "extra"}
        return {"type": self._type, **own, **self.extra}


@dataclass(frozen=True, slots=True)
class TextBlock(TypedBlock):
    """Plain text, which may be empty."""

    keys = frozenset({"type", "text"})
    _type = "text"
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ImageBlock(TypedBlock):
    """An image with its bytes."""

    keys = frozenset({"type", "source", "media_type", "data", "image_url"})
    _type = "image"
    media_type: MediaType  # it is not checked against the bytes
    data: bytes  # the image itself, not base64; at least one byte

    def as_raw(self) -> dict[str, Any]:
        encoded = base64.b64encode(self.data).decode("ascii")
        source = {"type": "base64", "media_type": self.media_type, "data": encoded}
        return {"type": self._type, "source": source, **self.extra}

    def __repr__(self) -> str:
        return f"ImageBlock(media_type={self.media_type!r}, data=<{len(self.data):,} bytes>)"


@dataclass(frozen=True, slots=True)
class ToolUseBlock(TypedBlock):
    """A tool call of the model."""

    keys = frozenset({"type", "id", "name", "tool", "input"})
    _type = "tool_use"
    id: str  # of the call; its result has the same id. Not blank
    name: str  # of the tool. Not blank
    input: dict[str, Any] = field(hash=False)  # the arguments, a JSON object


@dataclass(frozen=True, slots=True)
class ToolResultBlock(TypedBlock):
    """The result of a tool."""

    keys = frozenset({"type", "tool_use_id", "tool_call_id", "content", "output", "is_error"})
    _type = "tool_result"
    tool_use_id: str  # id of the call that it answers. Not blank
    # Text, or a list of text, image and other blocks. `from_dict` turns other JSON into its JSON text.
    content: str | list[TextBlock | ImageBlock | OtherBlock] = field(hash=False)
    is_error: bool = False  # whether the tool failed

    def as_raw(self) -> dict[str, Any]:
        shown = self.content if isinstance(self.content, str) else [to_dict(block) for block in self.content]
        return {**TypedBlock.as_raw(self), "content": shown}


@dataclass(frozen=True, slots=True)
class OtherBlock(ContentBlock):
    """A block without a typed form: thinking, a document, an image by its URL, or a malformed block."""

    raw: dict[str, Any] = field(hash=False)  # its JSON, unchanged; an object with a type

    @property
    def type(self) -> str:
        """E.g. ``thinking``."""
        return self.raw["type"]

    def as_raw(self) -> dict[str, Any]:
        return self.raw


def to_dict(block: ContentBlock) -> dict[str, Any]:
    """Return the JSON of a block; the caller may change it. Raises `InvalidMessage`: it is no block, or malformed."""
    if not isinstance(block, ContentBlock):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidMessage("block", f"must be a content block, got {type(block).__name__}")
    return block.to_dict()


def from_dict(raw: Mapping[str, Any]) -> ContentBlock:
    """Return the block of a dict in any of the spellings. Raises `InvalidMessage`: it is no JSON object with a type."""
    if not isinstance(raw, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidMessage("block", f"must be an object, got {type(raw).__name__}")
    return read_block(_checked(raw))


def _checked(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy."""
    copied = cast("dict[str, Any]", copy_checked(raw))
    if not isinstance(copied.get("type"), str):
        raise InvalidMessage("type", "a block needs a type")
    return copied


def read_block(raw: dict[str, Any]) -> ContentBlock:
    """Read JSON with a type that was checked before."""
    kind = raw["type"]
    if kind == "text" and isinstance(raw.get("text"), str):
        return TextBlock(raw["text"], extra=extra_of(TextBlock, raw))
    if kind in CALL_BLOCKS:
        id, name = raw.get("id"), raw.get("name") or raw.get("tool")
        if _is_name(id) and _is_name(name) and isinstance(raw.get("input") or {}, dict):
            return ToolUseBlock(id, name, _object(raw.get("input")), extra=extra_of(ToolUseBlock, raw))
    if kind == "tool_result":
        id, failed = block_answers(raw), raw.get("is_error") or False
        if _is_name(id) and isinstance(failed, bool):
            content = result_content(raw.get("output", raw.get("content")))
            return ToolResultBlock(id, content, failed, extra=extra_of(ToolResultBlock, raw))
    if kind in ("image", "image_url"):
        media_type, data = _image_of(raw)
        if media_type in get_args(MediaType) and data:
            return ImageBlock(cast(MediaType, media_type), data, extra=extra_of(ImageBlock, raw))
    return OtherBlock(raw)


def extra_of(kind: type[TypedBlock], raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: copy_json(value) for key, value in raw.items() if key not in kind.keys}


def result_content(content: Any) -> str | list[TextBlock | ImageBlock | OtherBlock]:
    """Read text, blocks, or any JSON that a host stored there: null becomes empty text, the rest JSON text."""
    if content is None or isinstance(content, str):
        return content or ""
    empty: dict[str, Any] = {}
    items = list(map(_object, cast("list[object]", content))) if isinstance(content, list) else [empty]
    if not all(isinstance(item.get("type"), str) for item in items):
        return json_text(cast(object, content))
    found = [(read_block(item), item) for item in items]
    return [one if isinstance(one, (TextBlock, ImageBlock, OtherBlock)) else OtherBlock(item) for one, item in found]


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _image_of(raw: Mapping[str, Any]) -> tuple[object, bytes]:
    """Return media type and bytes; none of an image by its URL, or in a store of the provider."""
    media_type, encoded = raw.get("media_type"), raw.get("data")
    if raw["type"] == "image_url":
        reference = raw.get("image_url")
        url = _object(reference).get("url", reference)
        media_type, encoded = (split_data_uri(url) if isinstance(url, str) else None) or (None, None)
    elif "source" in raw:
        source = _object(raw["source"])
        media_type, encoded = source.get("media_type"), source.get("data")
        if source.get("type") not in ("base64", None):
            return None, b""
    try:
        return media_type, base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except ValueError:  # binascii.Error, or characters beyond ASCII
        return None, b""
