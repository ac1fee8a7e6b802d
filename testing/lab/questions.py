"""Questions about earlier messages: whether the view still contains the answer, and whether a search finds it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from ..checks.message_shapes import Message, as_list, as_mapping
from .sessions import Question, Session, folded
from .token_scale import TokenScale

FIRST = 3  # results of a search that count


def in_view(question: Question, view_text: str) -> tuple[bool, bool]:
    """Return whether a folded view contains the evidence verbatim, and whether it contains a gold answer."""
    return (
        any(folded(quote) in view_text for quote in question.evidence),
        any(folded(answer) in view_text for answer in question.answers or question.evidence),
    )


async def in_search(question: Question, session: Session, context: Any, scale: TokenScale) -> bool | None:
    """True if a message with the evidence is in the first results of `search`; None for a manager without it."""
    search = getattr(context, "search", None)
    if search is None:
        return None
    found = search(question.text, FIRST)
    if inspect.isawaitable(found):
        found = await found
    wanted = {scale.number(session.messages[index]) for index in question.indices}
    for result in (as_list(found) or [])[:FIRST]:
        message = await _original(result, context)
        if message is not None and scale.number(message) in wanted:
            return True
    return False


async def _original(result: object, context: Any) -> Mapping[str, Any] | None:
    """Return the message of a search result: the result itself, or what `recall` returns for its mark."""
    if isinstance(result, str):
        recall = getattr(context, "recall", None)
        if recall is None:
            return None
        found = recall(result)
        return cast("Message | None", await found if inspect.isawaitable(found) else found)
    return as_mapping(result)
