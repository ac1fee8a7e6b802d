"""The summary text: what a model knows of the session, in lines under five headings.

Each answer is the whole text again. So nothing is merged by code: what an answer leaves out or words anew is gone or
changed. Code adds which files the calls touched, and drops what the history does not show (`checks.py`).

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from amplifier_context_core.messages.tokens import TokenCounter

Section = Literal["person", "work", "findings", "files", "values"]
SECTIONS: tuple[Section, ...] = get_args(Section)

MAX_LINES = 200  # of a text
MAX_CHARS = 800  # of a line; what is longer is cut at the end of a word
MARK = re.compile(r"\bm([1-9]\d{0,17})(?:\.\d{1,4})?\b")
_FILES = 60  # whose use is kept; the newest
_WORTH: Mapping[Section, int] = {"person": 9, "work": 8, "findings": 6, "values": 5, "files": 4}


@dataclass(frozen=True, slots=True)
class FileUse:
    """What calls did to a file: ``read``, or ``written`` if one of them did that; `mark` is that of the newest."""

    path: str
    use: str
    mark: str


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
    def is_task(self) -> bool:
        """True if it says what is open or comes next: after newer work it may not hold any more."""
        return self.section == "work" and not self.is_done

    @property
    def worth(self) -> int:
        """0 to 9: lines of the least worth go first where there is no room."""
        return _WORTH[self.section] - self.is_done


@dataclass(frozen=True, slots=True)
class Text:
    """A summary text.

    Attributes:
        lines: in the order of the sections.
        files: that calls touched, the one touched last at the end.
    """

    lines: tuple[Line, ...] = ()
    files: tuple[FileUse, ...] = ()

    def __str__(self) -> str:
        """Return it as a model reads and writes it."""
        parts = (
            "\n".join([f"## {section.capitalize()}", *(f"- {line.text}" for line in lines)])
            for section in SECTIONS
            if (lines := [line for line in self.lines if line.section == section])
        )
        return "\n\n".join(parts)

    def with_files(self, files: Iterable[FileUse]) -> Text:
        """Return the text with what newer calls did to files."""
        uses = {one.path: one for one in self.files}
        for new in files:
            before = uses.pop(new.path, None)
            uses[new.path] = replace(new, use="written") if before and before.use == "written" else new
        return Text(self.lines, tuple(uses.values())[-_FILES:])

    def fitted(self, counter: TokenCounter, max_tokens: int) -> Text:
        """Return the text with at most so many tokens: lines of the least worth go first, of these the last ones."""
        sizes = [counter(line.text) + 3 for line in self.lines]
        room = max_tokens - sum(sizes) - 4 * len(SECTIONS)
        if room >= 0:
            return self
        left = dict(enumerate(self.lines))
        for index in sorted(left, key=lambda index: (self.lines[index].worth, -index)):
            if room >= 0:
                break
            room += sizes[index]
            del left[index]
        return Text(tuple(left.values()), self.files)


def in_order(lines: Sequence[Line]) -> list[Line]:
    """Return lines in the order of the sections, of one section as given."""
    return sorted(lines, key=lambda line: SECTIONS.index(line.section))
