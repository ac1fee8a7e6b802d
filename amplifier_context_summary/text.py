"""The summary text: what a model knows of the session, in lines under five headings.

Each answer is the whole text again. So nothing is merged by code: what an answer leaves out or words anew is gone or
changed. Code adds which files calls touched, of which a model may invent some, and drops what the history does not show
(`checks.py`).

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from amplifier_context_core.messages.parsing import Call, arguments_of, calls_of
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.rendering.quoting import single_line
from amplifier_context_core.transcript.entry import Entry

Section = Literal["person", "work", "findings", "files", "values"]
SECTIONS: tuple[Section, ...] = get_args(Section)

MAX_LINES = 200  # of a text
MAX_CHARS = 800  # of a line; what is longer is cut at the end of a word
_MARKUP = 3  # tokens of a line's bullet and line end, at most
_HEADINGS = 4 * len(SECTIONS)  # tokens of all headings, at most
MARK = re.compile(r"\bm([1-9]\d{0,17})(?:\.\d{1,4})?\b")
_WORTH: Mapping[Section, int] = {"person": 9, "work": 8, "findings": 6, "values": 5, "files": 4}

_FILES = 60  # whose use is kept; the newest
_PATHS = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "target")
# Names of tools in words: `edit_file`, `writeFile`, `str_replace_editor`.
_WRITES = re.compile(r"write|edit|create|replace|patch|insert|update|save|append|delete|remove|move|rename", re.I)
_IS_FILE = re.compile(r"[^/\\]*\.\w{1,8}")  # what a search was made in is a folder as a rule
_LONGEST = 200  # characters of a path


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

    def with_files_of(self, entries: Iterable[Entry]) -> Text:
        """Return the text with what the calls of newer entries did to files."""
        uses = {one.path: one for one in self.files}
        for entry in entries:
            for call in calls_of(entry.message):
                if path := _path(call):
                    before = uses.pop(path, None)
                    is_written = _writes(call) or (before is not None and before.use == "written")
                    uses[path] = FileUse(path, "written" if is_written else "read", entry.mark)
        return Text(self.lines, tuple(uses.values())[-_FILES:])

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens that it needs to fit: each line counts by itself, and all headings do."""
        return sum(counter(line.text) + _MARKUP for line in self.lines) + _HEADINGS

    def fitted(self, counter: TokenCounter, max_tokens: int) -> Text:
        """Return the text with at most so many tokens: lines of the least worth go first, of these the last ones."""
        sizes = [counter(line.text) + _MARKUP for line in self.lines]
        room = max_tokens - sum(sizes) - _HEADINGS
        left = dict(enumerate(self.lines))
        for index in sorted(left, key=lambda index: (self.lines[index].worth, -index)):
            if room >= 0:
                break
            room += sizes[index]
            del left[index]
        return Text(tuple(left.values()), self.files)


def _path(call: Call) -> str:
    """Return the file that a call is about; empty if there is none."""
    arguments = {key.casefold(): value for key, value in arguments_of(call).items()}
    path = next((arguments[key] for key in _PATHS if key in arguments), None)
    if not isinstance(path, str) or len(path) > _LONGEST:
        return ""
    return single_line(path) if _IS_FILE.fullmatch(path.replace("\\", "/").rpartition("/")[2]) else ""


def _writes(call: Call) -> bool:
    action = arguments_of(call).get("command")
    is_view = isinstance(action, str) and action in ("view", "read", "cat")
    return _WRITES.search(call.name) is not None and not is_view
