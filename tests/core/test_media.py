"""Media: counted by the size in their header, else by a flat figure, never by the length of the base64 text."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from amplifier_context_core.messages.media import media_tokens
from amplifier_context_testing.checks.conversation_builder import image_block, image_url, png

FLAT = 600


def jpeg(width: int, height: int, leading: int = 0) -> str:
    """The header of a JPEG, with so many bytes of EXIF before the size."""
    parts = [b"\xff\xd8"]
    while leading > 0:
        size = min(leading, 65_000)
        parts.append(b"\xff\xe1" + struct.pack(">H", size + 2) + b"\x00" * size)
        leading -= size
    parts.append(b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\x00" * 9 + b"\xff\xd9")
    return base64.b64encode(b"".join(parts)).decode()


def as_source(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(640, 480, 410), (1, 1, 1), (1568, 100, 209)],
)
def test_an_image_costs_its_pixels(width: int, height: int, tokens: int) -> None:
    assert media_tokens(image_block(width, height), FLAT) == tokens


def test_a_huge_image_costs_what_it_is_scaled_down_to() -> None:
    assert media_tokens(image_block(2_000, 2_000), FLAT) == 1_600
    assert media_tokens(image_block(20_000, 10), FLAT) == media_tokens(image_block(1_568, 1), FLAT)


@pytest.mark.parametrize(
    "block",
    [
        image_block(640, 480),
        image_url(640, 480),
        {"type": "input_image", "image_url": f"data:image/png;base64,{png(640, 480)}"},
        {"type": "image", "source": f"data:image/png;base64,{png(640, 480)}"},
        {"type": "image", "source": {"data": f"data:image/png;base64,{png(640, 480)}"}},
        {"type": "file", "file": {"file_data": f"data:image/png;base64,{png(640, 480)}"}},
    ],
    ids=lambda block: f"{block['type']}:{next(key for key in block if key != 'type')}",
)
def test_the_size_is_found_in_every_spelling(block: dict[str, Any]) -> None:
    assert media_tokens(block, FLAT) == 410


def test_the_size_of_a_jpeg_is_found_after_its_exif_block() -> None:
    assert media_tokens(as_source(jpeg(640, 480), "image/jpeg"), FLAT) == 410
    assert media_tokens(as_source(jpeg(640, 480, leading=60_000), "image/jpeg"), FLAT) == 410


def test_a_size_beyond_what_is_read_costs_flat() -> None:
    assert media_tokens(as_source(jpeg(640, 480, leading=200_000), "image/jpeg"), FLAT) == FLAT


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image"},
        {"type": "image", "source": {}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,notbase64"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
        as_source("!!!! not base64 !!!!"),
        as_source(base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\x00" * 40).decode()),
        as_source(base64.b64encode(b"<svg width='1e999' height='-5'>").decode()),
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ],
    ids=str,
)
def test_media_without_a_readable_size_costs_a_flat_amount(block: dict[str, Any]) -> None:
    assert media_tokens(block, FLAT) == FLAT
    assert media_tokens(block, 7) == 7
