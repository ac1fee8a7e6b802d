"""What a view holds right after a compaction: how many of the newest rounds are whole, and what the rest is spent on.

A compaction is a request with a view below 0.9 of the view before. A round is a message of the agent with the results
of its calls. It is open while a result is missing, and whole if the view holds each of its messages as it was, the
numbers of lines apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, calls_of, results_of

from .shares import quantile, rounded
from .working_memory import unnumbered

SHRUNK = 0.9  # of the view before
LARGE = 1 / 3  # of the budget: a newest round above it is counted apart
_NAMES = "; "  # a line of a chapter lists names behind the last of it


@dataclass(frozen=True, slots=True)
class After:
    """The first view after a compaction.

    Attributes:
        rounds: newest rounds that are whole, one after the other; what people say between them is not counted.
        whole, used: share of the budget that these rounds take, and that the view takes.
        large: the newest round exceeds a third of the budget.
        chapters: share of the view that chapters take.
        names: share of the chapters that lists of names take.
    """

    rounds: int
    whole: float
    large: bool
    used: float
    chapters: float
    names: float


def is_compacted(before: Request | None, request: Request) -> bool:
    """True if a request is the first one after a compaction."""
    return before is not None and request.offsets[-1] < SHRUNK * before.offsets[-1]


def after(
    history: Sequence[Message], request: Request, chapters: Sequence[str], budget: int, scale: TokenScale
) -> After:
    """Return what a view holds after a compaction; `history` is what came before it, `chapters` are texts."""
    tokens = request.offsets[-1]
    held = {scale.number(_as_sent(message)) for message in request.messages}
    closed = [one for one in rounds_of(history) if one[0].get("role") == "assistant" and not _is_open(one)]
    whole: list[int] = []
    for one in reversed(closed):
        if any(scale.number(_as_sent(message)) not in held for message in one):
            break
        whole.append(sum(map(scale.tokens, one)))
    in_chapters = sum(map(scale.length, chapters))
    names = sum(
        scale.length(line.rpartition(_NAMES)[2]) for text in chapters for line in text.split("\n") if _NAMES in line
    )
    return After(
        rounds=len(whole),
        whole=sum(whole) / budget,
        large=bool(closed) and sum(map(scale.tokens, closed[-1])) > LARGE * budget,
        used=tokens / budget,
        chapters=in_chapters / tokens if tokens else 0.0,
        names=names / in_chapters if in_chapters else 0.0,
    )


def summary(compactions: Sequence[After]) -> dict[str, Any]:
    """Return the figures of compactions together: medians, and of the rounds the tenth percentile too.

    Those with a large newest round are left out of the rounds, of their share and of `none`.
    """
    usual = [one for one in compactions if not one.large]
    return {
        "count": len(compactions),
        "large": _share(len(compactions) - len(usual), len(compactions)),
        "rounds_p10": quantile([one.rounds for one in usual], 0.1),
        "rounds": quantile([one.rounds for one in usual], 0.5),
        "none": _share(sum(one.rounds == 0 for one in usual), len(usual)),
        "whole": _median(one.whole for one in usual),
        "used": _median(one.used for one in compactions),
        "chapters": _median(one.chapters for one in compactions),
        "names": _median(one.names for one in compactions),
    }


def rounds_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the rounds of messages: a message with calls and its results, or one other message."""
    rounds: list[list[Message]] = []
    open_calls: set[object] = set()
    for message in messages:
        results = results_of(message)
        if rounds and results and open_calls and any(result.id in open_calls for result in results):
            rounds[-1].append(message)
            continue
        rounds.append([message])
        open_calls = {call.id for call in calls_of(message)}
    return rounds


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return rounded(quantile(found, 0.5)) if found else None


def _share(part: int, whole: int) -> float | None:
    return rounded(part / whole) if whole else None


def _is_open(one: Sequence[Message]) -> bool:
    answered = {result.id for message in one for result in results_of(message)}
    return any(call.id not in answered for call in calls_of(one[0]))


def _as_sent(message: Message) -> Message:
    """Return a message as loops send it: absent content becomes empty text; without the numbers of lines."""
    content = message.get("content")
    return {**message, "content": "\n".join(unnumbered(content)) if isinstance(content, str) else content or ""}
