"""Prompt caches as providers run them: what a series of requests reads, writes and pays in full.

| name | cache |
| --- | --- |
| `prefix` | any prefix ever sent: OpenAI up to GPT-5.5, Gemini |
| `anthropic` | Anthropic, with breakpoints where Amplifier's provider-anthropic places them, as shipped |
| `declared` | the same with `cache_infer_stability_from_history: false` |
| `openai` | OpenAI from GPT-5.6 on |

Each model takes the requests of one session in order, with the time of each in seconds. Where no time is known every
request comes at 0.0, and nothing expires.
"""

from __future__ import annotations

from typing import Protocol

from .anthropic import Anthropic
from .bill import Bill
from .openai import AnyPrefix, OpenAI
from .request import Request

__all__ = ["Bill", "Cache", "caches"]


class Cache(Protocol):
    """One provider's cache during one session."""

    def bill(self, request: Request, at: float) -> Bill:
        """Return the bill of a request after the requests before it, and store its prefixes.

        Args:
            at: when it is sent, in seconds; never before the one before.
        """
        ...


def caches() -> dict[str, Cache]:
    """Return the caches for one session, all empty, by name."""
    return {
        "prefix": AnyPrefix(),
        "anthropic": Anthropic(inferring=True),
        "declared": Anthropic(inferring=False),
        "openai": OpenAI(),
    }
