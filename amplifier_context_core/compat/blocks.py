"""Typed content blocks, like those of other frameworks, and their JSON.

A block is a value: frozen, checked when it is created, with its own copy of its arguments. `to_dict` returns the form
that the core stores and can send to every provider. `from_dict` reads that form, and the spellings of Anthropic, OpenAI
and the kernel. Keys without a field are kept in `extra`. A block without a typed form (thinking, a document, an image
by its URL) is an `OtherBlock`. So no data is lost.

A malformed field of a block raises `InvalidMessage`, which names the field. Pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast, get_args

from ..errors import InvalidMessage
from ..messages.media import split_data_uri
from ..messages.parsing import CALL_BLOCKS, block_answers, copy_checked, copy_json, json_text

MediaType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
MEDIA_TYPES: frozenset[str] = frozenset(get_args(MediaType))
Checks = Mapping[str, Callable[[str, object], object]]
"""For each field a function from its name and value to the checked value."""

# -- checking ---------------------------------------------------------------------------------------------------------


def prefixed_error(where: str, problem: InvalidMessage) -> InvalidMessage:
    """Put `where` before the field's name."""
    text = str(problem).removeprefix(f"{problem.field}: ").removesuffix("; the message was not stored")
    return InvalidMessage(f"{where}{'' if problem.field.startswith('[') else '.'}{problem.field}", text)


def checked_object(where: str, value: object) -> dict[str, Any]:
    """Return a copy of a JSON object.

    Raises:
        InvalidMessage: it is not an object, or holds a value that JSON cannot hold; the error names the field from
            `where` on.
    """
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object", value)
    try:
        return cast("dict[str, Any]", copy_checked(cast(object, value)))
    except InvalidMessage as problem:
        raise prefixed_error(where, problem) from None


def extra_keys(value: object, taken: frozenset[str]) -> dict[str, Any]:
    """Raises `InvalidMessage`: a key is the name of a field, or they are not a JSON object."""
    extra = checked_object("extra", value)
    for key in extra:
        if key in taken:
            raise InvalidMessage(f"extra.{key}", "is the name of a field and cannot be an extra key")
    return extra


def _wrong(where: str, wanted: str, value: object) -> InvalidMessage:
    return InvalidMessage(where, f"must be {wanted}, got {'nothing' if value is None else type(value).__name__}")


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "text", value)
    return str.__str__(value)


def _not_blank(where: str, value: object) -> str:
    text = _text(where, value)
    if not text.strip():
        raise InvalidMessage(where, "must not be blank")
    return text


def _media_type(where: str, value: object) -> str:
    if _text(where, value) not in MEDIA_TYPES:
        raise InvalidMessage(where, f"must be one of {', '.join(sorted(MEDIA_TYPES))}")
    return cast(str, value)


def _image_bytes(where: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise _wrong(where, "bytes", value)
    if not value:
        raise InvalidMessage(where, "is empty")
    return value


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def block_list(where: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> list[Any]:
    """Raises `InvalidMessage`: it is no iterable of blocks of these kinds."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping)):
        raise _wrong(where, "text or a list of content blocks", cast(object, value))
    blocks = list(cast("Iterable[object]", value))
    for index, block in enumerate(blocks):
        if not isinstance(block, kinds):
            raise _wrong(f"{where}[{index}]", wanted, block)
    return blocks


def _result_content(where: str, value: object) -> str | list[TextBlock | ImageBlock | OtherBlock]:
    if isinstance(value, str):
        return str.__str__(value)
    return block_list(where, value, (TextBlock, ImageBlock, OtherBlock), "a text, image or other block")


# -- blocks -----------------------------------------------------------------------------------------------------------


class ContentBlock(ABC):
    """A part of a message. Its kinds are text, image, tool use, tool result, and other."""

    __slots__ = ()
    _checks: ClassVar[Checks] = {}

    def __post_init__(self) -> None:
        for name, check in self._checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The caller may change it."""


@dataclass(frozen=True, slots=True)
class TypedBlock(ContentBlock):
    """A block with fields."""

    keys: ClassVar[frozenset[str]]  # that a field is read from, in any spelling
    _type: ClassVar[str]
    # JSON data under keys without a field, e.g. ``cache_control``.
    extra: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True, repr=False, hash=False)

    def __post_init__(self) -> None:
        ContentBlock.__post_init__(self)
        object.__setattr__(self, "extra", extra_keys(self.extra, self.keys))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"type": ...}`` with the fields and the extra keys."""
        fields = {name: copy_json(getattr(self, name)) for name in self._checks}
        return {"type": self._type, **fields, **copy_json(self.extra)}


@dataclass(frozen=True, slots=True)
class TextBlock(TypedBlock):
    """Plain text, which may be empty."""

    keys = frozenset({"type", "text"})
    _type = "text"
    _checks: ClassVar[Checks] = {"text": _text}
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ImageBlock(TypedBlock):
    """An image with its bytes."""

    keys = frozenset({"type", "source", "media_type", "data", "image_url"})
    _type = "image"
    _checks: ClassVar[Checks] = {"media_type": _media_type, "data": _image_bytes}
    media_type: MediaType  # one of MEDIA_TYPES: jpeg, png, gif or webp. It is not checked against the bytes
    data: bytes  # the image itself, not base64; at least one byte

    def to_dict(self) -> dict[str, Any]:
        encoded = base64.b64encode(self.data).decode("ascii")
        source = {"type": "base64", "media_type": self.media_type, "data": encoded}
        return {"type": self._type, "source": source, **copy_json(self.extra)}

    def __repr__(self) -> str:
        return f"ImageBlock(media_type={self.media_type!r}, data=<{len(self.data):,} bytes>)"


@dataclass(frozen=True, slots=True)
class ToolUseBlock(TypedBlock):
    """A tool call of the model."""

    keys = frozenset({"type", "id", "name", "tool", "input"})
    _type = "tool_use"
    _checks: ClassVar[Checks] = {"id": _not_blank, "name": _not_blank, "input": checked_object}
    id: str  # of the call; its result has the same id. Not blank
    name: str  # of the tool. Not blank
    input: dict[str, Any] = field(hash=False)  # the arguments, a JSON object


@dataclass(frozen=True, slots=True)
class ToolResultBlock(TypedBlock):
    """The result of a tool."""

    keys = frozenset({"type", "tool_use_id", "tool_call_id", "content", "output", "is_error"})
    _type = "tool_result"
    _checks: ClassVar[Checks] = {"tool_use_id": _not_blank, "content": _result_content, "is_error": _flag}
    tool_use_id: str  # id of the call that it answers. Not blank
    # Text, or a list of text, image and other blocks. `from_dict` turns other JSON into its JSON text.
    content: str | list[TextBlock | ImageBlock | OtherBlock] = field(hash=False)
    is_error: bool = False  # whether the tool failed

    def to_dict(self) -> dict[str, Any]:
        content = _result_content("content", self.content)  # the caller may have changed a list since
        shown = content if isinstance(content, str) else [block.to_dict() for block in content]
        return {**TypedBlock.to_dict(self), "content": shown}


@dataclass(frozen=True, slots=True)
class OtherBlock(ContentBlock):
    """A block without a typed form: thinking, a document, an image by its URL, or a malformed block."""

    _checks: ClassVar[Checks] = {"raw": checked_object}
    raw: dict[str, Any] = field(hash=False)  # its JSON, unchanged; an object with a type

    def __post_init__(self) -> None:
        ContentBlock.__post_init__(self)
        if not isinstance(self.raw.get("type"), str):
            raise InvalidMessage("raw.type", "a block needs a type")

    @property
    def type(self) -> str:
        """E.g. ``thinking``."""
        return self.raw["type"]

    def to_dict(self) -> dict[str, Any]:
        return copy_json(self.raw)


def to_dict(block: ContentBlock) -> dict[str, Any]:
    """The caller may change it; raise `InvalidMessage` if it is not a content block."""
    if not isinstance(block, ContentBlock):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong("block", "a content block", block)
    return block.to_dict()


# -- reading ----------------------------------------------------------------------------------------------------------


def from_dict(raw: Mapping[str, Any]) -> ContentBlock:
    """Return the block of a dict in any of the spellings; an `OtherBlock` for a type without a typed form.

    Raises:
        InvalidMessage: it is not a JSON object with a type, or a field of a known type is missing or malformed (an
            image of another media type, data that is not base64); the error names the field. In the content of a
            result a malformed block is kept as an `OtherBlock`.
    """
    return _read(checked_object("block", raw))


def block_of(raw: dict[str, Any]) -> ContentBlock:
    """Read a dict with a type that was checked before; a malformed one becomes an `OtherBlock`."""
    try:
        return _read(raw)
    except InvalidMessage:
        return OtherBlock(raw)


def result_content(content: Any) -> str | list[TextBlock | ImageBlock | OtherBlock]:
    """Read text, blocks, or any JSON that a host stored there: null becomes empty text, the rest JSON text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(_is_block(item) for item in cast("list[object]", content)):
        return json_text(cast(object, content))
    found = [(block_of(item), item) for item in cast("list[dict[str, Any]]", content)]
    return [one if isinstance(one, (TextBlock, ImageBlock, OtherBlock)) else OtherBlock(item) for one, item in found]


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("type"), str)


def _read(raw: dict[str, Any]) -> ContentBlock:
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage("type", "a block needs a type")
    if kind == "text":
        return TextBlock(cast(str, raw.get("text")), extra=_extra(TextBlock, raw))
    if kind in CALL_BLOCKS:
        name = cast(str, raw.get("name") or raw.get("tool"))
        return ToolUseBlock(cast(str, raw.get("id")), name, raw.get("input") or {}, extra=_extra(ToolUseBlock, raw))
    if kind == "tool_result":
        content = result_content(raw.get("output", raw.get("content")))
        failed = False if raw.get("is_error") is None else raw["is_error"]
        return ToolResultBlock(block_answers(raw), content, failed, extra=_extra(ToolResultBlock, raw))
    return _read_image(raw) if kind in ("image", "image_url") else OtherBlock(raw)


def _read_image(raw: dict[str, Any]) -> ContentBlock:
    """Return an `OtherBlock` for an image by its URL, in a store of the provider, or in an unknown spelling."""
    where, source = "source", raw.get("source")
    if raw["type"] == "image_url":
        where, reference = "image_url", raw.get("image_url")
        url = cast("dict[str, Any]", reference).get("url") if isinstance(reference, dict) else reference
        parts = split_data_uri(url) if isinstance(url, str) else None
        source = {"type": "base64", "media_type": parts[0], "data": parts[1]} if parts else None
    found = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
    if found.get("type") != "base64":
        return OtherBlock(raw)
    try:
        return ImageBlock(
            cast(MediaType, found.get("media_type")), _decoded(found.get("data")), extra=_extra(ImageBlock, raw)
        )
    except InvalidMessage as problem:
        raise prefixed_error(where, problem) from None


def _decoded(encoded: object) -> bytes:
    text = _text("data", encoded)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or characters beyond ASCII
        raise InvalidMessage("data", "must be base64") from None


def _extra(kind: type[TypedBlock], raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in kind.keys}
