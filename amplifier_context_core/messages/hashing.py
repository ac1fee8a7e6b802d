"""Hashes by content: the same for the same message, in whichever session and at whatever time it was added.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import hashlib
import json

import orjson

from .parsing import Message


def content_hash(message: Message) -> bytes:
    """Return a hash of 16 bytes of a message without its times."""
    timeless = {key: value for key, value in message.items() if key not in ("timestamp", "metadata")}
    metadata = message.get("metadata")
    if isinstance(metadata, dict):
        kept = {key: value for key, value in metadata.items() if key != "timestamp"}  # pyright: ignore[reportUnknownVariableType]
        if kept:
            timeless["metadata"] = kept
    try:
        data = orjson.dumps(timeless, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, UnicodeError):
        data = json.dumps(timeless, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def chain_hash(before: bytes, seq: int, content: bytes) -> bytes:
    return hashlib.blake2b(before + seq.to_bytes(8, "big") + content, digest_size=16).digest()


def text_digest(text: str) -> bytes:
    """8 bytes identify the text of a vector."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
