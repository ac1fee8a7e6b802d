"""A request for a view: what is known of it before its view is selected, made once and handed down.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..compaction.protected import most_human_tokens
from ..compaction.strategies import Strategy
from ..economics.meter import Key
from ..economics.trigger import TokenLimits
from ..messages.tokens import TokenCounter
from ..outgoing.prefix import RequestPrefix
from ..rendering.renderer import RenderedMessage


@dataclass(frozen=True, slots=True)
class ViewRequest:
    limits: TokenLimits
    prefix: RequestPrefix
    system: tuple[RenderedMessage, ...]
    counter: TokenCounter
    required: frozenset[int] = frozenset()  # seqs that must stay verbatim in the view
    # Messages that the history gets with the request; the view ends with them.
    appended: tuple[RenderedMessage, ...] = ()
    # Writes the chapters of the view again if the provider writes the whole prefix again in any case; None to leave
    # them.
    late: Strategy | None = None
    system_tokens: int = field(init=False)  # of the system prompt, and of what else is sent beside the view

    def __post_init__(self) -> None:
        object.__setattr__(self, "system_tokens", sum(shown.tokens for shown in (*self.system, *self.appended)))

    @property
    def key(self) -> Key:
        return self.prefix.key

    @property
    def most_human_tokens(self) -> int:
        """Tokens up to which the newest human message is shown whole."""
        return most_human_tokens(self.limits.capacity, self.system_tokens)
