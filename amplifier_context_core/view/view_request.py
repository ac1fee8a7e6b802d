"""A request for a view: what is known of it before its view is selected, made once and handed down.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from .meter import Key
from .prefix import RequestPrefix
from .trigger import TokenLimits


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A request that a view is for.

    Attributes:
        limits: of the request.
        prefix: what it begins with: provider, model, hash of the tools and of the system prompt.
        system: the system prompt, sent before the view.
        system_tokens: of the system prompt, and of what else is sent beside the view, counted.
        counter: text to tokens.
        required: seqs that must stay verbatim in the view.
    """

    limits: TokenLimits
    prefix: RequestPrefix
    system: tuple[RenderedMessage, ...]
    system_tokens: int
    counter: TokenCounter
    required: frozenset[int] = frozenset()

    @property
    def key(self) -> Key:
        """Provider and model."""
        return self.prefix.key

    def counted_by(self, counter: TokenCounter) -> ViewRequest:
        """Return the same request with its system prompt counted by another counter."""
        system = tuple(shown.with_message(shown.message, counter) for shown in self.system)
        tokens = sum(shown.tokens for shown in system)
        return replace(self, system=system, system_tokens=tokens, counter=counter)
