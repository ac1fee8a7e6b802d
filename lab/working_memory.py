"""Working memory: the old texts of the agent's edits that the history holds, and whether the view still holds them.

A *line* has 24 characters or more with its white space folded and the line number of a Read taken off. An edit needs
the lines of its old text that an earlier message holds. It is whole if the view holds all of them; otherwise the agent
must read them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, as_list, as_mapping, calls_of
from amplifier_context_testing.checks.texts import decoded

from .sentences import folded
from .shares import Share

SHORTEST = 24  # characters of a line
OLD = frozenset({"old_string", "old_str", "old_text", "oldText"})  # arguments that hold the old text of an edit
_NUMBER = re.compile(r"\s*\d+\s*[→\t|-]")  # as Read, cat -n and the context of grep -n write it


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that are long enough, in order, without their numbers."""
    for line in text.split("\n"):
        number = _NUMBER.match(line)
        bare = folded(line[number.end() :] if number else line)
        if len(bare) >= SHORTEST:
            yield bare


def old_texts(arguments: object) -> Iterator[str]:
    for name, value in (as_mapping(arguments) or {}).items():
        if name in OLD and isinstance(value, str):
            yield value
        elif name == "edits":
            for edit in as_list(value) or ():
                yield from old_texts(edit)


class WorkingMemory:
    """The lines of one session that its edits need: of each edit, by index of the message that makes it."""

    def __init__(self, messages: Sequence[Message], scale: TokenScale) -> None:
        edits = [
            [frozenset(lines(old)) for call in calls_of(message) for old in old_texts(decoded(call.arguments))]
            for message in messages
        ]
        sought = frozenset(line for some in edits for edit in some for line in edit)
        self._lines = Memo(lambda message: sought.intersection(lines(scale.text(message))))
        known: set[str] = set()
        self.needs: list[list[frozenset[str]]] = []
        for message, some in zip(messages, edits, strict=True):
            self.needs.append([needed for edit in some if (needed := edit & known)])
            known |= self._lines.of(scale.number(message), message)

    def kept(self, index: int, request: Request) -> Share:
        """Return how many of the edits of the message with this index a view holds whole, of those that need lines."""
        needs = self.needs[index]
        if not needs:
            return Share()
        held = frozenset(line for found in self._lines.each(request) for line in found)
        return Share(sum(edit <= held for edit in needs), len(needs))
