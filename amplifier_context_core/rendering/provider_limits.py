"""Provider limits: which call ids and names providers accept, and the form in which a view sends the others.

A view must be valid for every provider, because a session may continue with another one. So an id or name that any of
them refuses is sent in a form that all accept; the history keeps the original. The form depends on the original alone,
so resumes and forks send the same bytes. Ids and names that all accept are sent unchanged.

Mistral's rule for call ids is stricter than all others: exactly nine letters or digits. A form that met it would
replace nearly every id that other providers issue. So only requests to a model of Mistral's have such ids, see
`with_short_ids`. They follow from the ids of the view, so that the prefix of these requests is stable as well.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence
from typing import Any, cast

from ..messages.parsing import CALL_BLOCKS, Message, blocks_of

# What every provider accepts; beside each pattern the strictest ones and where they say so.
# Anthropic, error 400: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'. OpenAI Chat Completions, error 400:
# messages[].tool_calls[].id: expected maximum length 40. (OpenAI Responses: 64. Amazon Bedrock, ToolUseBlock: 64.)
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
# Anthropic (Tool.name), Amazon Bedrock (ToolUseBlock.name), OpenAI (FunctionObject.name), Mistral
# (MistralRequestValidator): {1,64}. Google Gemini, error 400: must start with a letter or an underscore.
_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
# OpenAI, error 400: messages[].name: pattern '^[a-zA-Z0-9_-]+$'; API reference: 64.
_SPEAKER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SHORT_CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")  # mistral-common, MistralRequestValidatorV3

_REFUSED = re.compile(r"[^a-zA-Z0-9_-]+")
_DIGEST_BYTES = 5  # ten hexadecimal digits of a hash of the original, which separate originals that are cut alike
_LETTERS = string.digits + string.ascii_letters
_OF_MISTRAL = re.compile(r"(mi|mini|code|dev|magi)stral|mixtral|pixtral", re.I)


def safe_call_id(call_id: str) -> str:
    """Return the id under which a call is sent: unchanged if every provider accepts it."""
    return call_id if _CALL_ID.fullmatch(call_id) else _safe_form(call_id, 40)


def safe_tool_name(name: str) -> str:
    """See `safe_call_id`."""
    if _TOOL_NAME.fullmatch(name):
        return name
    form = _safe_form(name, 63)
    return form if _TOOL_NAME.fullmatch(form) else f"_{form}"


def safe_speaker_name(name: str) -> str:
    """See `safe_call_id`."""
    return name if _SPEAKER_NAME.fullmatch(name) else _safe_form(name, 64)


def wants_short_ids(provider: str, model: str) -> bool:
    """True if the names of provider and model indicate a model of Mistral."""
    return _OF_MISTRAL.search(f"{provider} {model}") is not None


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Messages without ids are the same objects."""
    short: dict[str, str] = {}
    taken: set[str] = set()

    def shortened(call_id: str) -> str:
        if call_id not in short:
            found, tries = call_id, 0
            while not _SHORT_CALL_ID.fullmatch(found) or found in taken:
                found, tries = _short_form(f"{call_id}\0{tries}"), tries + 1
            short[call_id] = found
            taken.add(found)
        return short[call_id]

    def sent(message: Message) -> Message:
        changed: Message = {}
        if message.get("tool_calls"):
            items = cast("list[dict[str, Any]]", message["tool_calls"])
            changed["tool_calls"] = [{**item, "id": shortened(item["id"])} for item in items]
        if message["role"] == "tool":
            changed["tool_call_id"] = shortened(message["tool_call_id"])
        if any(block.get("type") in CALL_BLOCKS for block in blocks_of(message)):
            changed["content"] = [
                {**block, "id": shortened(block["id"])} if block.get("type") in CALL_BLOCKS else block
                for block in blocks_of(message)
            ]
        return {**message, **changed} if changed else message

    return [sent(message) for message in messages]


def _safe_form(text: str, most: int) -> str:
    """Return a legible form in at most `most` characters: refused characters replaced, then a hash."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{_REFUSED.sub('_', text)[: most - len(digest) - 1]}_{digest}"


def _short_form(text: str) -> str:
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    digits: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_LETTERS))
        digits.append(_LETTERS[digit])
    return "".join(digits)
