"""Tokens of an image by the size in its header, never by the length of its base64 text."""

from __future__ import annotations

import base64
import io
from typing import Any, cast

MEDIA_BLOCKS = frozenset({"image", "image_url", "input_image", "audio", "input_audio", "video", "document", "file"})

_HEADER_CHARS = 88_000  # base64 characters decoded at most: 64 KiB, past any JPEG's leading EXIF block
_LONG_EDGE = 1568  # pixels; Anthropic's vision guide: larger images are scaled down to this long edge
_PIXELS_PER_TOKEN = 750  # Anthropic's vision guide: tokens = width * height / 750; OpenAI's tiles come out near it
_MAX_IMAGE_TOKENS = 1_600  # the same guide: what an image at the largest native size costs


def media_tokens(block: dict[str, Any], flat: int) -> int:
    """`flat` tokens are assumed when the size of the image, audio, video or file cannot be read from the data."""
    encoded = _base64_of(block)
    size = _pixels(encoded) if encoded else None
    if size is None:
        return flat
    width, height = size
    scale = min(1.0, _LONG_EDGE / max(width, height))
    return max(1, min(_MAX_IMAGE_TOKENS, round(width * scale * height * scale / _PIXELS_PER_TOKEN)))


def split_data_uri(uri: str) -> tuple[str, str] | None:
    """Return media type and base64 text of a ``data:`` URI; None if it is no such URI."""
    head, comma, data = uri.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")] or "application/octet-stream", data


def _base64_of(block: dict[str, Any]) -> str | None:
    for key in ("source", "image_url", "file", "input_audio"):
        nested = block.get(key)
        inner = cast("dict[str, Any]", nested) if isinstance(nested, dict) else {"data": nested}
        for place in ("data", "url", "file_data"):
            if found := _encoded(inner.get(place)):
                return found
    return _encoded(block.get("data"))


def _encoded(value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    if value.startswith("data:"):
        parts = split_data_uri(value[: _HEADER_CHARS + 200])
        return parts[1] if parts else None
    return None if "://" in value[:16] else value


def _pixels(encoded: str) -> tuple[int, int] | None:
    import imagesize  # at first use, because it imports urllib.request and with it ssl

    head = encoded[: min(_HEADER_CHARS, len(encoded) - len(encoded) % 4)]
    try:
        data = io.BytesIO(base64.b64decode(head))
        width, height = imagesize.get(data)  # pyright: ignore[reportUnknownMemberType]
    except Exception:  # noqa: BLE001 - a hostile header makes the reader fail in any way there is
        return None
    return (width, height) if width > 0 and height > 0 else None
