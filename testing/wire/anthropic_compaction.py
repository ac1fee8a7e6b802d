"""Anthropic's on-demand compaction: a request for it, the signed block that answers it, and requests with the block.

Sources: provider-anthropic, `compaction.py` and its tests: the beta header, the argument `compaction`, the block's
fields, its place before the conversation, usage in `iterations`, and controls that cannot be combined with it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import as_list, as_mapping, blocks_of
from . import anthropic_forms
from .problems import Refused
from .replies import Reply

Json = dict[str, Any]

METADATA = "anthropic:compaction"
BETA = "compact-2026-09-04"
SUMMARIZE: Mapping[str, str] = {"type": "summarize"}
_LABEL = "Native compacted conversation (originals remain in the transcript)."
_NOT_WITH = ("stop_sequences", "tool_choice", "stream", "context_management")
_SECRET = b"of this server"


def check(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Check what a request says of compaction.

    Raises:
        Refused: the beta is not asked for, the block is not whole or not first, or another model made it.
    """
    blocks = [(i, block) for i, one in enumerate(as_list(body.get("messages")) or ()) for block in _blocks(one)]
    has_beta = BETA in headers.get("anthropic-beta", "")
    if "compaction" in body:
        if not has_beta or as_mapping(body["compaction"]) != SUMMARIZE:
            raise Refused("compaction: Extra inputs are not permitted")
        if wrong := [key for key in _NOT_WITH if key in body]:
            raise Refused(f"{wrong[0]}: cannot be combined with compaction")
    for index, block in blocks:
        if not has_beta:
            raise Refused(f"messages.{index}.content.0: Input tag 'compaction' found using 'type' is not expected")
        if index or len(blocks) > 1:
            raise Refused(f"messages.{index}: a compaction block must precede the conversation")
        content, signature = block.get("content"), block.get("signature")
        if not isinstance(content, str) or signature != signed(str(body.get("model")), content):
            raise Refused(f"messages.{index}.content.0: Invalid `signature` in `compaction` block")


def plain(body: Mapping[str, Any]) -> Json:
    """Return a checked request as one without compaction: the block as a text, and a question at the end."""
    messages = [_plain(message) for message in as_list(body.get("messages")) or ()]
    if "compaction" not in body:
        return {**body, "messages": messages}
    rest = {key: value for key, value in body.items() if key != "compaction"}
    return {**rest, "messages": [*messages, {"role": "user", "content": "Summarize the conversation."}]}


def message(body: Mapping[str, Any], reply: Reply, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return the answer to a request for compaction: one signed block. A reply that was cut off is no compaction."""
    text = reply.answer.text
    block = {"type": "compaction", "content": text, "signature": signed(str(body["model"]), text)}
    is_done = reply.finish == "stop" and bool(text)
    plain = anthropic_forms.message(body, reply, bill, count, number)
    return {
        **plain,
        "content": [block] if is_done else [],
        "stop_reason": "compaction" if is_done else "max_tokens",
        "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [{"type": "compaction", **plain["usage"]}]},
    }


def signed(model: str, content: str) -> str:
    return hmac.new(_SECRET, f"{model}\0{content}".encode(), hashlib.sha256).hexdigest()


def carrier_of(model: str, block: Mapping[str, Any]) -> Json:
    state = {"version": 1, "model": model, "block": dict(block)}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", METADATA: state}
    return {"role": "user", "content": _LABEL, "metadata": marks}


def block_in(given: Mapping[str, Any], model: str) -> Json | None:
    """Return the block in a message of a session, None if it is no carrier.

    Raises:
        ValueError: the block was made by another model.
    """
    metadata = as_mapping(given.get("metadata")) or {}
    if METADATA not in metadata:
        return None
    state = as_mapping(metadata[METADATA]) or {}
    if state.get("version") != 1 or state.get("model") != model:
        raise ValueError("the compaction is of another model or form")
    return dict(as_mapping(state.get("block")) or {})


def usage_of(usage: Any) -> Json:
    """Return the usage of a compaction as the kernel has it: with cache reads in the input, without cache writes."""
    rows = [as_mapping(row) or {} for row in as_list((as_mapping(usage.model_dump()) or {}).get("iterations")) or ()]
    read = sum(row["cache_read_input_tokens"] for row in rows)
    return {
        "input_tokens": sum(row["input_tokens"] for row in rows) + read,
        "output_tokens": sum(row["output_tokens"] for row in rows),
        "cache_read_tokens": read,
        "cache_write_tokens": sum(row["cache_creation_input_tokens"] for row in rows),
    }


def _blocks(given: object) -> list[Mapping[str, Any]]:
    content = (as_mapping(given) or {}).get("content")
    return [block for _, block in blocks_of(content) if block.get("type") == "compaction"]


def _plain(given: object) -> Json:
    found = _blocks(given)
    if not found:
        return dict(as_mapping(given) or {})
    return {"role": "user", "content": [{"type": "text", "text": str(found[0]["content"])}]}
