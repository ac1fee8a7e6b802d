"""What requests cost, in tokens by price."""

from __future__ import annotations

from dataclasses import dataclass

# Prices in units of the price of a plain input token. Anthropic (cache of 5 minutes) and OpenAI from GPT-5.6 on charge
# the same. Source: the providers' price lists, in the README of microsoft/amplifier-module-provider-anthropic and in
# docs.rs/async-openai (PromptCacheOptionsParam).
READ = 0.1
WRITTEN = 1.25
FRESH = 1.0


@dataclass(frozen=True, slots=True)
class Bill:
    """Tokens of one or more requests.

    Attributes:
        fresh: neither: after the last breakpoint.
    """

    read: int = 0
    written: int = 0
    fresh: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.read + other.read, self.written + other.written, self.fresh + other.fresh)

    @property
    def tokens(self) -> int:
        return self.read + self.written + self.fresh

    @property
    def price(self) -> float:
        """Return what they cost, in prices of a plain input token."""
        return READ * self.read + WRITTEN * self.written + FRESH * self.fresh

    @property
    def plain_price(self) -> float:
        """Return the same where writing costs nothing extra: OpenAI up to GPT-5.5, Gemini."""
        return READ * self.read + FRESH * (self.written + self.fresh)
