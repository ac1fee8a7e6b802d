"""Messages as text, and identifiers and rules in a text. Independent of the core: the measured defines no measure.

Arguments of calls are decoded first: in raw JSON a tab or a line feed is a backslash and a letter, which would be
joined to the following name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .message_shapes import CALL_BLOCKS, THINKING_BLOCKS, as_list, as_mapping, blocks_of, calls_of

_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@#-]{4,}")
_EDGES = "./:@#-_"
_MARK = re.compile(r"[0-9/_.]|[a-z][A-Z]")
# English, and Chinese: the languages people write in the development data (memorybank_en_cn for Chinese). A Chinese
# word is a word in the pattern only where it is not part of a frequent longer one.
_RULE = re.compile(
    r"\b(?:never|always|don['’]t|do\s+not|only|instead|make\s+sure|please|(?:must|should)(?:n['’]t)?)\b"
    r"|从不|从来不|永远|总是|始终|必须|务必|一定要|不要|不准|不许|不能|请勿|禁止|只能|只要|仅|而不是|确保|保证|应该|应当|(?<![邀申聘])请(?![教客假问求])",
    re.IGNORECASE,
)


def identifiers(text: str) -> frozenset[str]:
    """Return the identifiers of a text.

    Runs of `[A-Za-z0-9_][A-Za-z0-9_./:@#-]{4,}` without punctuation at their edges, 5 to 120 characters long, that
    contain a digit, `/`, `_`, `.` or a change from lower to upper case.
    """
    stripped = {run.strip(_EDGES) for run in set(_RUN.findall(text))}
    return frozenset(name for name in stripped if 5 <= len(name) <= 120 and _MARK.search(name))


def is_rule(sentence: str) -> bool:
    """True if a sentence holds a word that rules are stated with."""
    return _RULE.search(sentence) is not None


def spoken(message: Mapping[str, Any]) -> str:
    """Return the text, the results and the call arguments of a message, without thinking and tool names."""
    return "\n".join([*_contents(message.get("content"), thinking=False), *_arguments(message)])


def visible(message: Mapping[str, Any]) -> str:
    names = [str(call.name) for call in calls_of(message) if call.name]
    return "\n".join([*_contents(message.get("content"), thinking=True), *names, *_arguments(message)])


def decoded(arguments: object) -> object:
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return arguments


def leaves(value: object) -> Iterator[str]:
    """Yield the keys and values of a JSON value as text, in order."""
    mapping = as_mapping(value)
    items = as_list(value)
    if mapping is not None:
        for key, item in mapping.items():
            yield str(key)
            yield from leaves(item)
    elif items is not None:
        for item in items:
            yield from leaves(item)
    elif value is not None:
        yield str(value)


def _arguments(message: Mapping[str, Any]) -> Iterator[str]:
    for call in calls_of(message):
        yield from leaves(decoded(call.arguments))


def _contents(content: object, *, thinking: bool) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for _, block in blocks_of(content):
        kind = block.get("type")
        if kind in CALL_BLOCKS:
            continue
        if kind in THINKING_BLOCKS:
            if thinking:
                yield str(block.get("thinking") or "")
        elif kind == "tool_result":
            yield from _contents(block.get("output", block.get("content")), thinking=thinking)
        else:
            yield str(block.get("text") or "")
