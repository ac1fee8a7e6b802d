"""What a request for a summary asks: the text so far and a range of the history, read back from its text.

The form is the one of docs/summary.md. Nothing is imported from the package that asks, so that a change of the form
is seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..checks.message_shapes import text_of

Speaker = Literal["person", "agent", "call", "result", "program"]

_FORMER = re.compile(r"<context_record>\n\[the summary so far[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HISTORY = re.compile(r"<context_record>\n\[history (m\d+) to (m\d+)[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HEAD = re.compile(r"(m\d+)(?:\.\d+)? (person|agent|call|result|program)(?: ([^:]*))?: ?(.*)")


@dataclass(frozen=True, slots=True)
class Quoted:
    """One message of the range.

    Attributes:
        mark: of the message.
        speaker: of it.
        name: of the tool, or of a result the call that it answers; empty for speech.
        text: its text, without the indentation of the quotation.
    """

    mark: str
    speaker: Speaker
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a summary.

    Attributes:
        former: lines of the summary so far, by heading.
        first, last: marks of the range.
        history: the range.
    """

    former: dict[str, list[str]]
    first: str
    last: str
    history: tuple[Quoted, ...]

    def of(self, speaker: Speaker) -> Iterator[Quoted]:
        """Yield the messages of a speaker, in order."""
        return (one for one in self.history if one.speaker == speaker)


def asked(request: Any) -> Asked | None:
    """Return what a `ChatRequest` asks to summarise; None if it asks for something else."""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        content: Any = message.model_dump(exclude_unset=True)["content"]
        text = text_of(content)
        former, history = _FORMER.search(text), _HISTORY.search(text)
        if former is not None and history is not None:
            return Asked(_sections(_plain(former[1])), history[1], history[2], tuple(_quoted(history[3])))
    return None


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("- "):
            found.setdefault(heading, []).append(line.removeprefix("- "))
    return found


def _quoted(text: str) -> Iterator[Quoted]:
    mark, speaker, name = "", "program", ""
    lines: list[str] = []
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is None:
            lines.append(line.removeprefix("  "))
            continue
        if mark:
            yield Quoted(mark, cast(Speaker, speaker), name, _plain("\n".join(lines)))
        mark, speaker, name, lines = head[1], head[2], head[3] or "", [head[4]]
    if mark:
        yield Quoted(mark, cast(Speaker, speaker), name, _plain("\n".join(lines)))


def _plain(text: str) -> str:
    """Return a text with its tags as they were before they were escaped."""
    return text.replace("&lt;", "<")
