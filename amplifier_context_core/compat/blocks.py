"""Typed content blocks, like those of other frameworks, and their JSON.

A block is a value: frozen, checked when it is created, with its own copy of its arguments. `to_dict` returns the form
that the core stores and can send to every provider. `from_dict` reads that form, and the spellings of Anthropic, OpenAI
and the kernel. Keys without a field are kept in `extra`. A block without a typed form (thinking, a document, an image
by its URL) is an `OtherBlock`. So no data is lost.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from ..errors import InvalidMessage
from ..messages.media import split_data_uri
from ..messages.parsing import CALL_BLOCKS, block_answers, copy_checked, copy_json, json_text

MediaType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
MEDIA_TYPES: frozenset[str] = frozenset(get_args(MediaType))

_TEXT_KEYS = frozenset({"type", "text"})
_IMAGE_KEYS = frozenset({"type", "source", "media_type", "data", "image_url"})
USE_KEYS = frozenset({"type", "id", "name", "tool", "input"})
_RESULT_KEYS = frozenset({"type", "tool_use_id", "tool_call_id", "content", "output", "is_error"})


class ContentBlock(ABC):
    """A part of a message. Its kinds are text, image, tool use, tool result, and other."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON data that the caller may change."""


@dataclass(frozen=True, slots=True)
class TextBlock(ContentBlock):
    """Plain text.

    Attributes:
        text: any text, also empty.
        extra: JSON data under keys without a field, e.g. ``cache_control``.

    Raises:
        InvalidMessage: a field has the wrong type; the error names it.
    """

    text: str
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, repr=False, hash=False)

    def __post_init__(self) -> None:
        _set(self, "text", _text("text", self.text))
        _set(self, "extra", extra_keys(self.extra, _TEXT_KEYS))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": "text", "text": ...}`` and the extra keys."""
        return {"type": "text", "text": self.text, **copy_json(self.extra)}


@dataclass(frozen=True, slots=True, repr=False)
class ImageBlock(ContentBlock):
    """An image with its bytes.

    Attributes:
        media_type: one of MEDIA_TYPES: jpeg, png, gif or webp. It is not checked against the bytes.
        data: the image itself, not base64; at least one byte.
        extra: JSON data under keys without a field.

    Raises:
        InvalidMessage: a field has the wrong type, or the media type is another; the error names the field.
    """

    media_type: MediaType
    data: bytes
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if _text("media_type", self.media_type) not in MEDIA_TYPES:
            raise InvalidMessage("media_type", f"must be one of {', '.join(sorted(MEDIA_TYPES))}")
        if not isinstance(self.data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidMessage("data", f"must be bytes, got {_kind(self.data)}")
        if not self.data:
            raise InvalidMessage("data", "is empty")
        _set(self, "extra", extra_keys(self.extra, _IMAGE_KEYS))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": "image", "source": {"type": "base64", "media_type": ..., "data": ...}}`` and extra keys."""
        encoded = base64.b64encode(self.data).decode("ascii")
        source = {"type": "base64", "media_type": self.media_type, "data": encoded}
        return {"type": "image", "source": source, **copy_json(self.extra)}

    def __repr__(self) -> str:
        return f"ImageBlock(media_type={self.media_type!r}, data=<{len(self.data):,} bytes>)"


@dataclass(frozen=True, slots=True)
class ToolUseBlock(ContentBlock):
    """A tool call of the model.

    Attributes:
        id: of the call; its result has the same id. Not blank.
        name: of the tool. Not blank.
        input: the arguments, a JSON object.
        extra: JSON data under keys without a field.

    Raises:
        InvalidMessage: a field has the wrong type, is blank, or is not JSON; the error names it.
    """

    id: str
    name: str
    input: dict[str, Any] = field(hash=False)
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, repr=False, hash=False)

    def __post_init__(self) -> None:
        _set(self, "id", _not_blank("id", self.id))
        _set(self, "name", _not_blank("name", self.name))
        _set(self, "input", checked_object("input", self.input))
        _set(self, "extra", extra_keys(self.extra, USE_KEYS))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": "tool_use", "id": ..., "name": ..., "input": {...}}`` and the extra keys."""
        fields = {"type": "tool_use", "id": self.id, "name": self.name, "input": copy_json(self.input)}
        return {**fields, **copy_json(self.extra)}


@dataclass(frozen=True, slots=True)
class ToolResultBlock(ContentBlock):
    """The result of a tool.

    Attributes:
        tool_use_id: id of the call that it answers. Not blank.
        content: text, or a list of text, image and other blocks. `from_dict` turns other JSON into its JSON text.
        is_error: whether the tool failed.
        extra: JSON data under keys without a field.

    Raises:
        InvalidMessage: a field has the wrong type or is blank; the error names it.
    """

    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | OtherBlock] = field(hash=False)
    is_error: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, repr=False, hash=False)

    def __post_init__(self) -> None:
        _set(self, "tool_use_id", _not_blank("tool_use_id", self.tool_use_id))
        _set(self, "content", _result_content(self.content))
        if not isinstance(self.is_error, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidMessage("is_error", f"must be true or false, got {_kind(self.is_error)}")
        _set(self, "extra", extra_keys(self.extra, _RESULT_KEYS))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": "tool_result", "tool_use_id": ..., "content": ..., "is_error": ...}`` and extra keys."""
        content = _result_content(self.content)  # the caller may have changed a list since
        shown = content if isinstance(content, str) else [block.to_dict() for block in content]
        fields = {"type": "tool_result", "tool_use_id": self.tool_use_id, "content": shown, "is_error": self.is_error}
        return {**fields, **copy_json(self.extra)}


@dataclass(frozen=True, slots=True)
class OtherBlock(ContentBlock):
    """A block without a typed form: thinking, a document, an image by its URL, or a malformed block.

    Attributes:
        raw: its JSON, unchanged.

    Raises:
        InvalidMessage: `raw` is not a JSON object, or has no type.
    """

    raw: dict[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        _set(self, "raw", checked_object("raw", self.raw))
        if not isinstance(self.raw.get("type"), str):
            raise InvalidMessage("raw.type", "a block needs a type")

    @property
    def type(self) -> str:
        """The type in its JSON, e.g. ``thinking``."""
        return self.raw["type"]

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of its JSON."""
        return copy_json(self.raw)


def to_dict(block: ContentBlock) -> dict[str, Any]:
    """Return a block as JSON data that the caller may change.

    Raises:
        InvalidMessage: it is not a content block.
    """
    if not isinstance(block, ContentBlock):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidMessage("block", f"must be a content block, got {_kind(block)}")
    return block.to_dict()


def from_dict(raw: Mapping[str, Any]) -> ContentBlock:
    """Return the block of a dict in any of the spellings; an `OtherBlock` for a type without a typed form.

    Raises:
        InvalidMessage: it is not a JSON object with a type, or a field of a known type is missing or malformed (an
            image of another media type, data that is not base64); the error names the field.
    """
    return _read(checked_object("block", raw), strict=True)


def block_of(raw: dict[str, Any]) -> ContentBlock:
    """Return the block of a dict with a type that was checked before; a malformed one becomes an `OtherBlock`."""
    try:
        return _read(raw, strict=False)
    except InvalidMessage:
        return OtherBlock(raw)


def prefixed_error(where: str, problem: InvalidMessage) -> InvalidMessage:
    """Return an error of a nested field, with `where` before the field's name."""
    text = str(problem).removeprefix(f"{problem.field}: ").removesuffix("; the message was not stored")
    return InvalidMessage(f"{where}{'' if problem.field.startswith('[') else '.'}{problem.field}", text)


def checked_object(where: str, value: object) -> dict[str, Any]:
    """Return a copy of a JSON object.

    Raises:
        InvalidMessage: it is not an object, or holds a value that JSON cannot hold; the error names the field from
            `where` on.
    """
    if not isinstance(value, Mapping):
        raise InvalidMessage(where, f"must be an object, got {_kind(value)}")
    try:
        return cast("dict[str, Any]", copy_checked(cast(object, value)))
    except InvalidMessage as problem:
        raise prefixed_error(where, problem) from None


def extra_keys(value: object, taken: frozenset[str]) -> dict[str, Any]:
    """Return a copy of the extra keys, none of which may be the name of a field.

    Raises:
        InvalidMessage: one is the name of a field, or they are not a JSON object.
    """
    extra = checked_object("extra", value)
    for key in extra:
        if key in taken:
            raise InvalidMessage(f"extra.{key}", "is the name of a field and cannot be an extra key")
    return extra


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(raw: dict[str, Any], *, strict: bool) -> ContentBlock:
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage("type", "a block needs a type")
    if kind in CALL_BLOCKS:
        name = raw.get("name") or raw.get("tool")
        return ToolUseBlock(
            cast(str, raw.get("id")), cast(str, name), raw.get("input") or {}, extra=_remaining(raw, USE_KEYS)
        )
    if kind == "tool_result":
        return _read_result(raw, strict=strict)
    reader = _READERS.get(kind)
    return reader(raw) if reader else OtherBlock(raw)


def _read_text(raw: dict[str, Any]) -> ContentBlock:
    return TextBlock(cast(str, raw.get("text")), extra=_remaining(raw, _TEXT_KEYS))


def _read_image(raw: dict[str, Any]) -> ContentBlock:
    extra = _remaining(raw, _IMAGE_KEYS)
    if "source" not in raw:
        return _image(raw.get("media_type"), raw.get("data"), extra)
    source = raw["source"]
    if not isinstance(source, dict):
        raise InvalidMessage("source", f"must be an object, got {_kind(source)}")
    source = cast("dict[str, Any]", source)
    if source.get("type") not in ("base64", None):
        return OtherBlock(raw)  # by its URL, or in a store of the provider
    try:
        return _image(source.get("media_type"), source.get("data"), extra)
    except InvalidMessage as problem:
        raise prefixed_error("source", problem) from None


def _read_image_url(raw: dict[str, Any]) -> ContentBlock:
    reference = raw.get("image_url")
    url = cast("dict[str, Any]", reference).get("url") if isinstance(reference, dict) else reference
    data = split_data_uri(url) if isinstance(url, str) else None
    if data is None:
        return OtherBlock(raw)
    try:
        return _image(*data, _remaining(raw, _IMAGE_KEYS))
    except InvalidMessage as problem:
        raise prefixed_error("image_url", problem) from None


_READERS: Mapping[str, Callable[[dict[str, Any]], ContentBlock]] = {
    "text": _read_text,
    "image": _read_image,
    "image_url": _read_image_url,
}


def _image(media_type: object, encoded: object, extra: dict[str, Any]) -> ImageBlock:
    text = _text("data", encoded)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or characters beyond ASCII
        raise InvalidMessage("data", "must be base64") from None
    return ImageBlock(cast(MediaType, media_type), data, extra=extra)


def _read_result(raw: dict[str, Any], *, strict: bool) -> ToolResultBlock:
    is_error = raw.get("is_error")
    return ToolResultBlock(
        block_answers(raw),
        result_content(raw.get("output", raw.get("content")), strict=strict),
        False if is_error is None else is_error,
        extra=_remaining(raw, _RESULT_KEYS),
    )


def result_content(content: Any, *, strict: bool = False) -> str | list[TextBlock | ImageBlock | OtherBlock]:
    """Return the content of a tool result in its typed form.

    Args:
        content: text, blocks, or any JSON that a host stored there: null becomes empty text, the rest JSON text.
        strict: raise an error for a malformed block, instead of keeping it as an `OtherBlock`.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(_is_block(item) for item in cast("list[object]", content)):
        return json_text(cast(object, content))
    found: list[TextBlock | ImageBlock | OtherBlock] = []
    for index, item in enumerate(cast("list[dict[str, Any]]", content)):
        try:
            block = _read(item, strict=True) if strict else block_of(item)
        except InvalidMessage as problem:
            raise prefixed_error(f"content[{index}]", problem) from None
        found.append(block if isinstance(block, (TextBlock, ImageBlock, OtherBlock)) else OtherBlock(item))
    return found


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("type"), str)


def _remaining(raw: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in taken}


# -- checking ---------------------------------------------------------------------------------------------------------


def _set(block: ContentBlock, name: str, value: object) -> None:
    object.__setattr__(block, name, value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(where, f"must be text, got {_kind(value)}")
    return str.__str__(value)


def _not_blank(where: str, value: object) -> str:
    text = _text(where, value)
    if not text.strip():
        raise InvalidMessage(where, "must not be blank")
    return text


def _result_content(value: object) -> str | list[TextBlock | ImageBlock | OtherBlock]:
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray, Mapping)):
        raise InvalidMessage("content", f"must be text or a list of blocks, got {_kind(cast(object, value))}")
    blocks = list(cast("Iterable[object]", value))
    for index, block in enumerate(blocks):
        if not isinstance(block, (TextBlock, ImageBlock, OtherBlock)):
            raise InvalidMessage(f"content[{index}]", f"must be a text, image or other block, got {_kind(block)}")
    return cast("list[TextBlock | ImageBlock | OtherBlock]", blocks)


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
