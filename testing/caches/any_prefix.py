"""A cache that finds the longest prefix of whole messages that was ever sent: OpenAI up to GPT-5.5, Gemini."""

from __future__ import annotations

from .bill import Bill
from .entries import Entries
from .request import Request

TTL = 300.0  # seconds: OpenAI's `in_memory` retention is 5 to 10 minutes (README of provider-openai)


class AnyPrefix:
    """Reads the longest prefix ever sent, writes the rest."""

    def __init__(self) -> None:
        self._entries = Entries(TTL)

    def bill(self, request: Request, at: float) -> Bill:
        """Return the bill of a request after the requests before it."""
        chain = request.prefixes
        longest = next((end for end in range(len(request), 0, -1) if self._entries.holds(chain[end], at)), 0)
        self._entries.use(chain[1:], at)
        read = request.offsets[longest]
        return Bill(read, request.offsets[-1] - read)
