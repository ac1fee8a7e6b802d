"""Thinking in messages: which models bind it, where providers take it, and how a message is sent without it.

docs/caching.md gives the vendors' rules with their sources.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from ..messages.parsing import SEALED_KEYS, THINKING_BLOCKS, WIRE_CONTENT, Message, metadata_of, with_metadata


class ThinkingRule(Enum):
    """What a provider demands of the thinking in earlier answers of a model.

    Members:
        BOUND: it is valid only after the very messages, tools and system prompt that it was written after.
        REQUIRED: answers since the last message of a person that call tools must come with it. It is not bound.
        FREE: it may come or not. It is not bound.
    """

    BOUND = "bound"
    REQUIRED = "required"
    FREE = "free"


# By the name of a model, the first match counts; gateways put names of their own before and after it. A model that no
# row names is bound, because thinking that is left out is an error for no model of its provider that we know.
_BY_MODEL: tuple[tuple[str, ThinkingRule], ...] = (
    (r"claude-(?:opus|sonnet|haiku)-5[.-]5(?!\d)|claude-(?:fable|mythos)-5[.-][12](?!\d)", ThinkingRule.BOUND),
    # Adaptive thinking only: no turn must begin with thinking, and no prefix is checked.
    (r"claude-opus-4[.-][78](?!\d)|claude-mythos-preview", ThinkingRule.FREE),
    (r"claude-(?:opus|sonnet|haiku|fable|mythos)-5(?![\d.]|-\d(?!\d{3}))", ThinkingRule.FREE),
    # Manual thinking: the running tool loop must begin with it.
    (r"claude-3[.-]7|claude-(?:opus|sonnet|haiku)-4(?![\d.]|-[7-9](?!\d)|-\d\d(?!\d))", ThinkingRule.REQUIRED),
    (r"claude-(?:opus|sonnet|haiku)-4\.[0-6](?!\d)", ThinkingRule.REQUIRED),
    (r"gemini-(?:[3-9]|\d\d)", ThinkingRule.REQUIRED),
    (r"gemini-[12](?!\d)", ThinkingRule.FREE),
    (r"deepseek|kimi", ThinkingRule.REQUIRED),
    (r"(?:^|[/.])(?:chat)?gpt-|(?:^|[/.])o[134](?:-|$)|(?:^|[/.])codex|glm-|qwen", ThinkingRule.FREE),
)
# By the name of a provider, where the model is not known or no row names it. Servers of open models check no signature.
_BY_PROVIDER: tuple[tuple[str, ThinkingRule], ...] = (
    (r"deepseek|moonshot|kimi|gemini", ThinkingRule.REQUIRED),
    (r"openai|ollama|vllm", ThinkingRule.FREE),
)


@lru_cache(maxsize=256)
def thinking_rule(provider: str, model: str) -> ThinkingRule:
    """Either name may be empty."""
    for name, rows in ((model.lower(), _BY_MODEL), (provider.lower(), _BY_PROVIDER)):
        for pattern, rule in rows:
            if re.search(pattern, name):
                return rule
    return ThinkingRule.BOUND


def declares_binding(message: Message) -> bool:
    """True if the provider noted on the message that its model binds thinking (docs/caching.md)."""
    return "thinking_binding" in _anthropic_metadata(message)


def only_thinking(content: str | list[dict[str, Any]]) -> bool:
    """No provider takes thinking alone."""
    return isinstance(content, list) and all(block.get("type") in THINKING_BLOCKS for block in content)


def thinking_in_place(content: str | list[dict[str, Any]], *, calls: bool) -> str | list[dict[str, Any]]:
    """Return the content without thinking where no provider takes it.

    Signed thinking must begin its message and be followed by other content (Anthropic). Otherwise all of it is dropped.
    """
    if isinstance(content, str):
        return content
    thoughts = [index for index, block in enumerate(content) if block.get("type") in THINKING_BLOCKS]
    if not thoughts or len(thoughts) == len(content):
        return content
    closes = thoughts[-1] == len(content) - 1 and not calls
    signed = any(content[index].get("signature") or "data" in content[index] for index in thoughts)
    if not closes and (not signed or content[0].get("type") in ("thinking", "redacted_thinking")):
        return content
    return [block for block in content if block.get("type") not in THINKING_BLOCKS]


def without_thinking(message: Message) -> Message | None:
    """Return the message without thinking, wherever a provider would take it from; None if nothing is left.

    A provider may send an answer as the copy of its wire form in the metadata says, not as its content says.
    """
    content = message.get("content")
    kept: Message = {key: value for key, value in message.items() if key not in SEALED_KEYS}
    if isinstance(content, list):
        kept["content"] = _without(cast("list[dict[str, Any]]", content)) or ""
    own = _anthropic_metadata(message)
    if isinstance(own.get(WIRE_CONTENT), list):
        wire = _without(cast("list[dict[str, Any]]", own[WIRE_CONTENT]))
        rest = {key: value for key, value in own.items() if key != WIRE_CONTENT}
        kept["metadata"] = {**metadata_of(message), "anthropic": {**rest, WIRE_CONTENT: wire} if wire else rest}
    if not kept.get("content") and not kept.get("tool_calls"):
        return None
    return kept


def without_wire_content(message: Message) -> Message:
    """Leave out the copy of the wire form, which a provider would send in place of the content."""
    own = _anthropic_metadata(message)
    if WIRE_CONTENT not in own:
        return message
    rest = {key: value for key, value in own.items() if key != WIRE_CONTENT}
    metadata = {key: value for key, value in metadata_of(message).items() if key != "anthropic"}
    kept = {**metadata, "anthropic": rest} if rest else metadata
    return with_metadata(message, kept)


def _without(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if not isinstance(block, dict) or block.get("type") not in THINKING_BLOCKS]  # pyright: ignore[reportUnnecessaryIsInstance]


def _anthropic_metadata(message: Message) -> dict[str, Any]:
    own = metadata_of(message).get("anthropic")
    return cast("dict[str, Any]", own) if isinstance(own, dict) else {}
