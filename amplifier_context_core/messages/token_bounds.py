"""Upper bounds of token counts, for a session whose vocabulary is not loaded yet.

Loading a vocabulary takes 0.04 s of processor time and 66 MB (docs/scale.md). What is sent to a model does not depend
on it as long as the session is surely below every limit. So the first view of a process is made with upper bounds: no
text has more tokens than UTF-8 bytes, because a token of a byte-level BPE holds at least one byte. Every decision that
a bound cannot make waits for the vocabulary.
"""

from __future__ import annotations

from .tokens import TokenCounter, loaded_token_counter, start_loading


class BoundingTokenCounter:
    """A vocabulary's counter that returns upper bounds until the vocabulary is loaded, and exact counts from then on.

    Args:
        encoding: name of the vocabulary.

    Attributes:
        has_bounded: True if it has returned an upper bound.
    """

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.has_bounded = False
        self._counter: TokenCounter | None = None

    def __call__(self, text: str) -> int:
        if self.is_loaded and self._counter is not None:
            return self._counter(text)
        self.has_bounded = True
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    @property
    def is_loaded(self) -> bool:
        """True if counts are exact from now on, or estimates because there is no vocabulary."""
        if self._counter is None:
            self._counter = loaded_token_counter(self.encoding)
        return self._counter is not None

    @property
    def exact(self) -> bool:
        """True if the vocabulary is loaded."""
        return self.is_loaded and bool(getattr(self._counter, "exact", False))

    def start_loading(self) -> None:
        """Load the vocabulary in a thread, one for all sessions. A process may end meanwhile."""
        if not self.is_loaded:
            start_loading(self.encoding)

    def __repr__(self) -> str:
        return f"VocabularyTokenCounter({self.encoding!r})" if self._counter is None else repr(self._counter)


def has_bounds(counter: TokenCounter) -> bool:
    """True if the counter has returned upper bounds."""
    return isinstance(counter, BoundingTokenCounter) and counter.has_bounded
