"""Excerpts: the line of a tool's output that says most in plain words.

A name can be looked up again; what a file or a search has about it is lost with the output. So a chapter quotes one
line of an output: the one with the most words that the chapter does not have yet.

A line with words that demand something or address its reader is not quoted, as a chapter outlives the output. These
words are English and Chinese, and a bare imperative has none of them. So every excerpt is also short, one line, and
within the fence that marks a chapter as data.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re

from ..rendering.quoting import single_line
from .speech import states_rule, word_end

_SCANNED = 12_000  # characters of an output, from its start
_LINES = 300  # lines of an output, from its start
_LEAST_WORDS = 4  # new words; a line with fewer says little beside the names that are kept in any case
_STEM = 7  # letters by which forms of a word are one word
_WORD = re.compile(r"(?<![\w./@#:-])[^\W\d_]{5,}(?![\w/@#:]|\.\w)")
_ADDRESSED = re.compile(
    r"\b(?:you|your|yours|yourself|ignore|disregard|forget|pretend|obey|instructions?|prompts?|assistant|override)\b",
    re.IGNORECASE,
)
_EDGES = "/#*-+<>|=~`'\"()[]{}!;: \t"  # signs of comments, lists and tables


def excerpt(text: str, known: set[str], prefix: re.Pattern[str], room: int) -> str:
    """Return the line of an output with the most new words, shortened at a word's end; empty if none has enough.

    Args:
        text: the output.
        known: words, by their first letters, that a chapter has already; the words of the excerpt are added.
        prefix: what comes before the text of a line: its number, or the place where a search found it.
        room: characters of the excerpt; 0 for none.
    """
    best, found = "", set[str]()
    for line in text[:_SCANNED].splitlines()[:_LINES]:
        if len(line) <= len(best) and len(line) < room:
            continue  # as many words hardly fit
        shown = _shortened(prefix.sub("", line, count=1), room)
        words = {word[:_STEM].lower() for word in _WORD.findall(shown)} - known
        if len(words) > max(len(found), _LEAST_WORDS - 1) and not is_addressed(shown):
            best, found = shown, words
    known |= found
    return best


def is_addressed(line: str) -> bool:
    """True if a line has words that demand something or address its reader, in English or Chinese."""
    return states_rule(line) or _ADDRESSED.search(line) is not None


def _shortened(line: str, room: int) -> str:
    flat = single_line(line[: 3 * room]).strip(_EDGES)
    return flat if len(flat) <= room else f"{flat[: word_end(flat, room)]} …"
