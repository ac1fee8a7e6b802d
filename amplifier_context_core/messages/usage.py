"""What a provider answers, and what it reports of its answer: text, tokens, model, outcome. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import cast

from .parsing import Message, metadata_of, text_of

COMPACTION_PURPOSE = "context-compaction"  # `metadata["purpose"]` of requests for a summary; hosts label calls by it
# Keys in which loops and providers state where a message came from.
_MODEL, _PROVIDER = ("model", "model_id"), ("provider", "provider_id")
_FINISH, _ERROR, _USAGE = ("finish_reason", "stop_reason"), ("error",), "usage"
_MOST_TOKENS = 100_000_000  # of one response; a larger figure is nonsense
_MOST_DOLLARS = 1_000_000  # of one response
_MOST_DIGITS = 40  # characters of an amount


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response as its provider reported them."""

    input_tokens: int  # all input, cache reads included
    output_tokens: int = 0
    cache_read_tokens: int = 0  # part of the input that came from the prompt cache
    cache_write_tokens: int = 0  # input written to the prompt cache (Anthropic: not part of `input_tokens`)
    cost_usd: str | None = None  # what it cost in dollars, as a decimal number; None if the provider did not say


@dataclass(frozen=True, slots=True)
class Response:
    """Provenance of an assistant message, as far as the message or the last ``llm:response`` event states it."""

    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    # Hash of the request that it answers, in hexadecimal; None unless its thinking may be bound to that.
    prefix: str | None = None


def response_of(message: Message, reported: Response | None) -> Response | None:
    """Return what the message states, completed by the last response event."""
    metadata = metadata_of(message)

    def named(names: tuple[str, ...]) -> str | None:
        for name in names:
            for place in (message, metadata):
                value = place.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    usage = usage_of(message.get(_USAGE)) or usage_of(metadata.get(_USAGE))
    stated = Response(named(_MODEL), named(_PROVIDER), usage, named(_FINISH), named(_ERROR))
    if stated == Response():
        return reported
    if reported is None:
        return stated
    names = (one.name for one in fields(Response))
    return Response(*(getattr(stated, name) or getattr(reported, name) for name in names))


def measured(usage: Usage) -> int:
    """Return the tokens of the whole input. `input_tokens` includes cache reads, but not Anthropic's cache writes."""
    return usage.input_tokens + usage.cache_write_tokens


def usage_of(data: object) -> Usage | None:
    """Return the usage in the dict of an event or a message; None if there is none. Older names are understood.

    A figure that makes no sense counts as missing.
    """
    if not isinstance(data, dict):
        return None
    figures: dict[str, int] = {}
    names = {
        "input_tokens": ("input_tokens", "input", "prompt_tokens"),
        "output_tokens": ("output_tokens", "output", "completion_tokens"),
        "cache_read_tokens": ("cache_read_tokens", "cache_read_input_tokens", "cache_read"),
        "cache_write_tokens": ("cache_write_tokens", "cache_creation_input_tokens", "cache_write"),
    }
    for figure, spellings in names.items():
        for spelling in spellings:
            value = data.get(spelling)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS:
                figures[figure] = value
                break
    if "input_tokens" not in figures:
        return None
    return Usage(**figures, cost_usd=cost_in(data.get("cost_usd")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def cost_in(value: object) -> str | None:
    """Return an amount of dollars as a decimal number, as the kernel writes it in events; None if it is none."""
    try:
        amount = Decimal(value) if isinstance(value, (str, Decimal)) else None
        text = str(amount) if amount is not None and 0 <= amount <= _MOST_DOLLARS else None
    except InvalidOperation:  # also of a comparison with NaN
        return None
    return text if text is not None and len(text) <= _MOST_DIGITS else None  # it is kept with every answer


def text_of_answer(answer: object) -> str | None:
    """Read a plain text or a `ChatResponse`; None if it is of no form that can hold any text."""
    content: object = answer if isinstance(answer, str) else getattr(answer, "content", None)
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    return text_of([_as_dict(block) for block in cast("list[object]", content)])


def _as_dict(block: object) -> object:
    """The kernel's blocks are objects."""
    if isinstance(block, dict):
        return cast(object, block)
    return {"type": getattr(block, "type", ""), "text": getattr(block, "text", "")}
