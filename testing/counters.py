"""Token counters for tests: exact by definition, so that a test can say "ten tokens" and mean it."""

from __future__ import annotations

from collections.abc import Callable

TokenCounter = Callable[[str], int]
"""Text in, tokens out. The core's protocol of the same name; written here again so that nothing is imported."""


class WordCounter:
    """Counts words: runs of characters between white space. `calls` and `characters` are the amounts counted."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        self.characters += len(text)
        return len(text.split())

    def __repr__(self) -> str:
        return f"WordCounter(calls={self.calls}, characters={self.characters})"
