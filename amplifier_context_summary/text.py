"""The summary text: what a model knows of the session, in lines under five headings.

Each answer is the whole text again. So nothing is merged by code: what an answer leaves out or words anew is gone or
changed. Code drops what the history does not show (`checks.py`), and what has no room.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.rendering.quoting import single_line

Section = Literal["person", "work", "findings", "files", "values"]
SECTIONS: tuple[Section, ...] = get_args(Section)

MAX_LINES = 200  # of a text
MAX_CHARS = 800  # of a line; what is longer is cut at the end of a word
HEADS: Mapping[str, str] = {  # in the order in which a view shows them
    "person": "The person:",
    "findings": "Found out:",
    "files": "Files:",
    "values": "Values:",
    "work": "The work:",
}
MARK = re.compile(r"\bm([1-9]\d{0,17})(?:\.\d{1,4})?\b")
_WORTH: Mapping[Section, int] = {"person": 9, "work": 8, "findings": 6, "values": 5, "files": 4}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text, under its heading."""

    section: Section
    text: str

    @property
    def marks(self) -> list[int]:
        """The seqs of the marks that it names."""
        return [int(found) for found in MARK.findall(self.text)]

    @property
    def is_done(self) -> bool:
        """True if it says of a task that it is done."""
        return self.section == "work" and self.text.casefold().startswith("done")

    @property
    def is_next(self) -> bool:
        """True if it says what comes next, such as a file that is still to be made."""
        return self.section == "work" and self.text.casefold().startswith(("next:", "next step"))

    @property
    def is_task(self) -> bool:
        """True if it says what is open or comes next: after newer work it may not hold any more."""
        return self.section == "work" and not self.is_done

    @property
    def worth(self) -> int:
        """0 to 9: lines of the least worth go first where there is no room."""
        return _WORTH[self.section] - self.is_done


@dataclass(frozen=True, slots=True)
class Text:
    """A summary text: its lines in the order of the sections."""

    lines: tuple[Line, ...] = ()

    def __str__(self) -> str:
        sections = groupby(self.lines, lambda line: line.section)
        parts = ([f"## {section.capitalize()}", *(f"- {line.text}" for line in lines)] for section, lines in sections)
        return "\n\n".join(map("\n".join, parts))

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens that it takes in a view, about."""
        sizes = (counter(single_line(line.text)) + 1 for line in self.lines)
        return sum(sizes) + sum(counter(HEADS[section]) + 1 for section in {line.section for line in self.lines})

    def fitted(self, counter: TokenCounter, most: int) -> Text:
        """Return the text with the lines that fit into `most` tokens, those worth most first."""
        chosen: set[int] = set()
        headed: set[Section] = set()
        for index, line in sorted(enumerate(self.lines), key=lambda one: -one[1].worth):
            head = 0 if line.section in headed else counter(HEADS[line.section]) + 1
            size = head + counter(single_line(line.text)) + 1
            if size <= most:
                most -= size
                chosen.add(index)
                headed.add(line.section)
        return Text(tuple(line for index, line in enumerate(self.lines) if index in chosen))
