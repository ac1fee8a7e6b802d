"""A vocabulary that a test loads when it wants, and sessions that are counted with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_core.messages import count_cache, tokens
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, count_message_tokens
from amplifier_context_core.view import shared_cache
from tests.places import Place

from .sessions import Message, manager_on, turns

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

    def nowhere(self, encoding: object = None) -> None:
        """Find no vocabulary."""

    def unload(self) -> None:
        """Behave as a new process does."""
        tokens._loaded.clear()  # pyright: ignore[reportPrivateUsage]
        shared_cache.clear()
        count_cache.clear()


def exact(message: Message) -> int:
    return count_message_tokens(message, VocabularyTokenCounter(pieces, "o200k_base"))


async def filled(place: Place, number: int, **config: Any) -> ContextManager:
    """Return a session of this many turns, with its vocabulary loaded and a view of the newest state sent."""
    manager = manager_on(place.store(), place.session_id(), **EXACT, **config)
    for message in turns(number):
        await manager.add_message(message)
        if message["role"] == "assistant":
            await manager.get_messages_for_request()
    return manager


async def loaded(manager: ContextManager) -> ContextManager:
    await manager.load()
    return manager
