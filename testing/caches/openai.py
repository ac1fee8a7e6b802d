"""OpenAI's caches: up to GPT-5.5 any prefix of whole messages, which is Gemini's too; from GPT-5.6 on breakpoints.

From GPT-5.6 on, in the implicit mode, a request writes one breakpoint, at its newest user or tool message. A read
matches exactly at a breakpoint: one of the latest 80 user or tool messages of the request must be where an earlier
request wrote one. Sources: docs.rs/async-openai `PromptCacheOptionsParam` (80 breakpoints, 30 minutes),
docs.langchain4j.dev `OpenAiOfficialPromptCacheBreakpoint` ("exactly at a breakpoint"), openai/codex#35300 ("near the
latest user or tool message").
"""

from __future__ import annotations

from .bill import Bill
from .request import Entries, Request

PREFIX_TTL = 300.0  # seconds: OpenAI's `in_memory` retention is 5 to 10 minutes (README of provider-openai)
TTL = 1800.0  # seconds: 30 minutes, the only value (docs.langchain4j.dev `OpenAiOfficialPromptCacheOptions.TTL_30M`)
PLACES = 80  # breakpoints a read looks at
_ROLES = frozenset({"user", "tool", "function"})


class AnyPrefix:
    """Reads the longest prefix of whole messages that was ever sent, writes the rest."""

    def __init__(self) -> None:
        self._entries = Entries(PREFIX_TTL)

    def bill(self, request: Request, at: float) -> Bill:
        chain = request.prefixes
        longest = next((end for end in range(len(request), 0, -1) if self._entries.holds(chain[end], at)), 0)
        self._entries.use(chain[1:], at)
        read = request.offsets[longest]
        return Bill(read, request.offsets[-1] - read)


class OpenAI:
    """Writes at the newest user or tool message, reads exactly where an earlier request wrote."""

    def __init__(self) -> None:
        self._entries = Entries(TTL)

    def bill(self, request: Request, at: float) -> Bill:
        places = [end for end, message in enumerate(request.messages, 1) if message.get("role") in _ROLES]
        total = request.offsets[-1]
        if not places:
            return Bill(fresh=total)
        chain = request.prefixes
        end = next((place for place in places[: -PLACES - 1 : -1] if self._entries.holds(chain[place], at)), 0)
        self._entries.use([chain[place] for place in {end, places[-1]} if place], at)
        read, cached = request.offsets[end], request.offsets[places[-1]]
        return Bill(read, cached - read, total - cached)
