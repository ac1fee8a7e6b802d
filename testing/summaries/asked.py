"""What a request for a summary asks: the state so far and a range of the history, read back from its text.

The form is the one of docs/summary.md. Nothing is imported from the package that asks, so that a change of the form
is seen here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..checks.message_shapes import as_list, as_mapping, text_of

Speaker = Literal["person", "agent", "call", "result", "note"]

_STATE = re.compile(r"<context_record>\n\[the state so far[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HISTORY = re.compile(r"<context_record>\n\[history (m\d+) to (m\d+)[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HEAD = re.compile(r"(m\d+) (person|agent|call|result|note)(?: ([^:]*))?: ?(.*)")


@dataclass(frozen=True, slots=True)
class Quoted:
    """One message of the range.

    Attributes:
        mark: of the message.
        speaker: of it.
        name: of the tool; empty for speech.
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
        state: before the range, as JSON.
        first, last: marks of the range.
        history: the range.
    """

    state: Mapping[str, Any]
    first: str
    last: str
    history: tuple[Quoted, ...]

    def of(self, speaker: Speaker) -> Iterator[Quoted]:
        """Yield the messages of a speaker, in order."""
        return (one for one in self.history if one.speaker == speaker)

    def items(self, section: str) -> list[Mapping[str, Any]]:
        """Return the items of a section of the state."""
        return [as_mapping(item) or {} for item in as_list(self.state.get(section)) or ()]


def asked(request: Any) -> Asked | None:
    """Return what a `ChatRequest` asks to summarise; None if it asks for something else."""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        content: Any = message.model_dump(exclude_unset=True)["content"]
        text = text_of(content)
        state, history = _STATE.search(text), _HISTORY.search(text)
        if state is not None and history is not None:
            return Asked(_json(state[1]), history[1], history[2], tuple(_quoted(history[3])))
    return None


def _json(text: str) -> Mapping[str, Any]:
    try:
        return as_mapping(json.loads(_plain(text))) or {}
    except ValueError:
        return {}


def _quoted(text: str) -> Iterator[Quoted]:
    mark, speaker, name = "", "note", ""
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
