"""Is a message that is added one of the history's own, coming once more (a resumed sub-agent's transcript)?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..messages.parsing import INSTRUCTING, Message, Reading
from .alignment import same_message, timestamp_of
from .transcript import Snapshot

_AHEAD = 50  # messages a host may have left out when it replays a history


class Replay:
    """How far a host has come that gives a history again, message by message.

    That begins, if at all, before the first request: who asks has given what there was to give.

    Args:
        history: gives the history as it is now.
        load: brings all of it into memory.
    """

    def __init__(self, history: Callable[[], Snapshot], load: Callable[[], Awaitable[None]]) -> None:
        self._history, self._load = history, load
        self._next: int | None = None  # place of the message that may come next; None: none of them is expected
        self._begins = False  # a resumed history, of which nothing but its instructions was given again

    @property
    def is_expected(self) -> bool:
        """May messages of the history come once more?"""
        return self._next is not None

    def resumed(self) -> None:
        """A history was resumed: all of it may come once more."""
        self._next, self._begins = 0, True

    def listed(self) -> None:
        """A list was made the history: its messages may come once more."""
        self._next = 0

    def worked(self) -> None:
        """A human spoke: from now on, instructions are meant."""
        self._begins = False

    def end(self) -> None:
        """None is expected any more."""
        self._next, self._begins = None, False

    async def has(self, message: Message, reading: Reading) -> bool:
        """Is it one of the history's next messages?

        Only a message that carries the stored one's timestamp: a new "continue" must not pass for an old one. But for
        the instructions a history begins with: whoever resumes it gives them again, as they were at first.
        """
        stamp = timestamp_of(message)
        history = self._history()
        if stamp is None:
            return self._begins and reading.role in INSTRUCTING and _begins_with(history, message, reading)
        first = self._next or 0
        for place in range(first, min(len(history), first + _AHEAD)):  # a filter may have left some out
            if place in history.gap:
                if not self._next:
                    return False  # nothing was recognised yet: a new message must not make a session load everything
                await self._load()  # the host replays all of it, so all of it is needed
                history = self._history()
            entry = history[place]
            if stamp == timestamp_of(entry.message) and same_message(entry, message, reading):
                if self._next is not None:  # or a request was made while the history was loaded
                    self._next = place + 1
                return True
        return False


def _begins_with(history: Snapshot, message: Message, reading: Reading) -> bool:
    """Does a history begin with instructions that say this?"""
    for place in range(history.gap.start if history.gap else len(history)):
        entry = history[place]
        if entry.role not in INSTRUCTING:
            return False
        if same_message(entry, message, reading):
            return True
    return False
