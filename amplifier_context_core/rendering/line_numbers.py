"""Line numbers: of lines that a tool numbers one after the other, each tenth keeps its number.

Tools that read files write a number before each line, and `grep` with context a path too: a third of the tokens of
code. The first and the last line keep theirs, and each match of a search, so that of each other line it follows. Its
indentation stays, as an edit of the file needs it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LEAST = 5  # lines; of fewer, too little is saved
_EACH = 10
_WIDTH = 6  # characters of a number as `cat -n` writes it; else a tab ends the first column of a table
_ESCAPE = re.compile(r"\\.", re.DOTALL)
# As `cat -n` and `grep -n -C` write them, in plain text or within a JSON string: path, number, what ends it.
_NUMBERED = re.compile(r"((?:[^\s:]{1,200}?[:-])??)( *[0-9]{1,7})(→|\t|\\t|\\u2192|[:-])")
_OF_SEARCH = ":-"  # behind the number of a match, and of a line around it


def with_fewer_line_numbers(text: str) -> str:
    """Return the text with each tenth number of its listings; the same object if it has no listing."""
    feed = "\n" if "\n" in text else "\\n"
    if text.count(feed) < _LEAST - 1:
        return text
    lines = text.split(feed) if feed == "\n" else _escaped_lines(text)
    run: list[re.Match[str]] = []
    for index, line in enumerate((*lines, "")):
        number = _NUMBERED.match(line)
        if number is None or not run or not _follows(run[-1], number):
            if len(run) >= _LEAST and _is_listing(run):
                lines[index - len(run) : index] = [run[0].string, *map(_without_number, run[1:-1]), run[-1].string]
            run = []
        if number is not None:
            run.append(number)
    done = feed.join(lines)
    return done if len(done) < len(text) else text


def _escaped_lines(text: str) -> list[str]:
    """Return the parts of JSON between its escaped line feeds; an escaped backslash before an n is none."""
    feeds = [escape.start() for escape in _ESCAPE.finditer(text) if escape[0] == "\\n"]
    return [text[start:end] for start, end in zip((0, *(feed + 2 for feed in feeds)), (*feeds, len(text)), strict=True)]


def _follows(before: re.Match[str], number: re.Match[str]) -> bool:
    """True for the next line of the same file, written alike."""
    is_alike = before[3] == number[3] or (before[3] in _OF_SEARCH and number[3] in _OF_SEARCH)
    return is_alike and int(number[2]) == int(before[2]) + 1 and before[1][:-1] == number[1][:-1]


def _is_listing(run: Sequence[re.Match[str]]) -> bool:
    """False for what only looks like one: a list of items, a table with numbered rows."""
    ends = {number[3] for number in run}
    return len(ends) > 1 or ("→" in ends or "\\u2192" in ends) or (len(run[0][2]) >= _WIDTH and ends != {":"})


def _without_number(number: re.Match[str]) -> str:
    rest = number.string[number.end() :]
    # A line that reads as numbered without its number would be taken for another one, and `--` for the end of a part.
    is_kept = number[3] == ":" or int(number[2]) % _EACH == 0 or rest == "--" or _NUMBERED.match(rest)
    return number.string if is_kept else rest
