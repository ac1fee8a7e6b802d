"""Names beside the hits of a search: those that the conversation lacks, under the marks of messages that have them.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from .recall_pages import Counter, Source

_APART = 1  # tokens between two names
_HEADER = 6  # tokens of the line before the names of a message


def name_sources(names: Iterable[tuple[str, str]], shown: str, tokens: int, counter: Counter) -> list[Source]:
    """Return names by message, in the order of the messages.

    Args:
        names: each with the mark of a message that has it; those that are wanted most first.
        shown: text whose names are left out.
        tokens: that the names may cost, with a line for each message.
        counter: text to tokens.
    """
    chosen: dict[str, list[str]] = {}
    for name, mark in names:
        if name in shown:
            continue
        tokens -= counter(name) + _APART + (0 if mark in chosen else _HEADER)
        if tokens < 0:
            break
        chosen.setdefault(mark, []).append(name)
    return [Source(mark, "", (", ".join(chosen[mark]),)) for mark in sorted(chosen, key=_seq)]


def _seq(mark: str) -> int:
    return int(mark[1:])
