"""A vocabulary that counts its loads, and sessions that are counted with it."""

from __future__ import annotations

from pathlib import Path

from amplifier_context_core.messages import count_cache, tokens
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, count_message_tokens
from amplifier_context_core.view import shared_cache

from .sessions import Message

EXACT = {"token_counter": "o200k_base"}
ROOT = Path(__file__).parents[2]


def pieces(text: str) -> int:
    """Count with a vocabulary of texts of four bytes, quickly loaded."""
    return -(-len(text.encode()) // 4)


class Vocabulary:
    """Whether this process has loaded the vocabulary; `there_is` says whether one can be loaded."""

    def __init__(self) -> None:
        self.loads = 0
        self.there_is = True

    def load(self, encoding: str) -> tokens.TokenCounter | None:
        self.loads += 1
        return VocabularyTokenCounter(pieces, encoding) if self.there_is else None

    def nowhere(self, encoding: str, seconds: float) -> None:
        """Find no vocabulary."""

    def unload(self) -> None:
        """Behave as a new process does."""
        tokens._loaded.clear()  # pyright: ignore[reportPrivateUsage]
        shared_cache.clear()
        count_cache.clear()


def exact(message: Message) -> int:
    return count_message_tokens(message, VocabularyTokenCounter(pieces, "o200k_base"))
