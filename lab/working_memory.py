"""Working memory: what the agent's next calls repeat of the history, and whether the view still holds it.

A *line* has 24 characters or more with its white space folded and the line number of a Read taken off. A
call needs the lines of its arguments that an earlier message holds. An edit is whole if the view holds all the
lines that its old text needs. Otherwise the agent must read again what the view lacks, which has a price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from amplifier_context_testing.caches.bill import READ, WRITTEN
from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, as_list, as_mapping, calls_of
from amplifier_context_testing.checks.texts import decoded, leaves

from .sentences import folded
from .shares import Share

SHORTEST = 24  # characters of a line
CALLING = 300  # tokens: what a call that reads again costs beside its request and its result (issue 30)
OLD = frozenset({"old_string", "old_str", "old_text", "oldText"})  # arguments that hold the old text of an edit
_NUMBER = re.compile(r"\s*\d+\s*[→\t|-]")  # as Read, cat -n and the context of grep -n write it


def unnumbered(text: str) -> Iterator[str]:
    """Yield the lines of a text without their numbers, in order."""
    for line in text.split("\n"):
        number = _NUMBER.match(line)
        yield line[number.end() :] if number else line


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that are long enough, in order."""
    for line in map(folded, unnumbered(text)):
        if len(line) >= SHORTEST:
            yield line


def old_texts(arguments: object) -> Iterator[str]:
    for name, value in (as_mapping(arguments) or {}).items():
        if name in OLD and isinstance(value, str):
            yield value
        elif name == "edits":
            for edit in as_list(value) or ():
                yield from old_texts(edit)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the calls of one message need of the history.

    Attributes:
        edits: of the old text of each edit that needs any, with the index of the newest message that holds the line.
    """

    lines: tuple[str, ...]
    edits: tuple[Mapping[str, int], ...]


class WorkingMemory:
    """The lines of one session that its calls repeat; `needs` is by index of the message that calls."""

    def __init__(self, messages: Sequence[Message], scale: TokenScale) -> None:
        self._scale = scale
        self._messages = messages
        self._lines = Memo(lambda message: self._repeated.intersection(lines(scale.text(message))))
        calls = [[decoded(call.arguments) for call in calls_of(message)] for message in messages]
        self._repeated = frozenset(line for some in calls for text in leaves(some) for line in lines(text))
        newest: dict[str, int] = {}
        self.needs: dict[int, Needs] = {}
        for index, (message, some) in enumerate(zip(messages, calls, strict=True)):
            self.needs[index] = Needs(
                tuple(line for text in leaves(some) for line in lines(text) if line in newest),
                tuple(
                    needed
                    for arguments in some
                    for text in old_texts(arguments)
                    if (needed := {line: newest[line] for line in lines(text) if line in newest})
                ),
            )
            newest.update(dict.fromkeys(self._lines.of(scale.number(message), message), index))

    def kept(self, index: int, request: Request) -> tuple[Share, Share, float]:
        """Return what a view holds of the needs of the message with this index.

        Returns:
            Of its lines, of its edits those that are whole, and the price of reading again what the others lack, in
            prices of a plain input token.
        """
        needs = self.needs[index]
        held = (
            frozenset(line for found in self._lines.each(request) for line in found)
            if needs.lines
            else frozenset[str]()
        )
        lacking = [
            sources for edit in needs.edits if (sources := [at for line, at in edit.items() if line not in held])
        ]
        price = sum(
            READ * request.offsets[-1] + WRITTEN * self._scale.tokens(self._messages[max(sources)]) + CALLING
            for sources in lacking
        )
        return (
            Share(sum(line in held for line in needs.lines), len(needs.lines)),
            Share(len(needs.edits) - len(lacking), len(needs.edits)),
            price,
        )
