"""LangChain's tool-clearing edit (`ClearToolUsesEdit` of its context editing middleware), then `trim_messages`.

The middleware edits a copy for each request; the state stays whole.
"""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from copy import copy
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit
from langchain_core.messages import BaseMessage, trim_messages

from ...checks.message_shapes import Message
from ..text import plain
from ..token_scale import TokenScale
from .langchain_messages import Turned

_TRIGGER = 0.5  # of the budget: the default is 100,000 tokens, of a window of 200,000


class Edited:
    """The edit on every request, and trimming where that is not enough."""

    def __init__(self, scale: TokenScale, budget: int) -> None:
        self._turned = Turned(scale)
        self._budget = budget
        self._state: list[BaseMessage] = []
        self._edit = ClearToolUsesEdit(trigger=int(budget * _TRIGGER))

    async def add_message(self, message: Message) -> None:
        """Append to the state."""
        self._state.extend(self._turned.take(one) for one in plain(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return the state, edited as the middleware does before a model call."""
        edited: list[Any] = copy(self._state)  # the edit replaces messages and changes none
        self._edit.apply(edited, count_tokens=self._turned.count)
        if self._turned.count(edited) > self._budget:
            edited = trim_messages(
                edited,
                max_tokens=self._budget,
                token_counter=self._turned.count,
                strategy="last",
                start_on="human",
                end_on=("human", "tool"),
                include_system=True,
            )
        return self._turned.back(edited)


def open_peer(scale: TokenScale, budget: int) -> Edited:
    """Return the adapter for one session."""
    return Edited(scale, budget)
