"""Re-reads: files that the agent reads again soon after the view lost what it had read.

A Read is lost at the first request whose view holds less than half of the lines of its result. The recording has the
same Reads for every manager; which of them are re-reads depends on what the manager dropped before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, as_mapping, calls_of, results_of
from amplifier_context_testing.checks.texts import decoded

from .working_memory import lines

SOON = 20  # requests
TOOLS = frozenset({"read", "read_file", "view", "view_file", "open_file"})  # in lower case
PATHS = ("file_path", "path", "file", "filename")  # the arguments that name the file
_HELD = 0.5  # share of the lines


@dataclass(frozen=True, slots=True)
class Read:
    """A Read of a file that is read again: indices of the messages with its result and with the later call."""

    shown: int
    again: int
    lines: frozenset[str]


class Reads:
    """The Reads of one session whose files are read again."""

    def __init__(self, messages: Sequence[Message], scale: TokenScale) -> None:
        self.found: list[Read] = []
        shown: dict[str, int] = {}  # by file: the message with the newest result
        files: dict[str, str] = {}  # by id of the call
        for index, message in enumerate(messages):
            for call in calls_of(message):
                file = file_of(str(call.name), decoded(call.arguments))
                if file is None:
                    continue
                files[str(call.id)] = file
                if file in shown and (held := frozenset(lines(scale.text(messages[shown[file]])))):
                    self.found.append(Read(shown[file], index, held))
            for result in results_of(message):
                if (file := files.pop(str(result.id), None)) is not None:
                    shown[file] = index
        watched = frozenset(line for read in self.found for line in read.lines)
        self._lines = Memo(lambda message: watched.intersection(lines(scale.text(message))))

    def lines_in(self, request: Request) -> frozenset[str]:
        return frozenset(line for found in self._lines.each(request) for line in found)


class ReReads:
    """Counts the re-reads of one session, request by request."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._requests = 0
        self._lost: dict[int, int] = {}  # by message with a result: the request whose view lost it

    def take(self, index: int, request: Request) -> int:
        """Return how many Reads of the message with this index are re-reads; requests come in order."""
        self._requests += 1
        open_reads = [read for read in self._reads.found if read.shown < index <= read.again]
        if not open_reads:
            return 0
        held = self._reads.lines_in(request)
        for read in open_reads:
            if len(read.lines & held) >= _HELD * len(read.lines):
                self._lost.pop(read.shown, None)
            else:
                self._lost.setdefault(read.shown, self._requests)
        return sum(
            read.again == index and self._requests - self._lost.get(read.shown, -SOON) < SOON for read in open_reads
        )


def file_of(tool: str, arguments: object) -> str | None:
    """Return the file that a call reads; None if it reads none."""
    if tool.lower() not in TOOLS:
        return None
    named = as_mapping(arguments) or {}
    return next((str(named[name]) for name in PATHS if name in named), None)
