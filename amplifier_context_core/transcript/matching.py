"""Whether what a host hands in is stored already: the beginning of a list, or a message of a replayed history.

What is compared is described in `alignment`. Long lists are compared in slices, or in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from ..errors import InvalidMessage
from ..futures import YIELD_EVERY, in_thread
from ..messages.parsing import SYSTEM_ROLES, Message, MessageInfo, ParsedMessage, parse_message
from ..messages.timestamps import timestamp_of
from .alignment import Alignment, align, same_message
from .transcript import Entry, Snapshot

_AHEAD = 50  # messages a host may have left out when it replays a history


async def matching_prefix(stored: Snapshot, incoming: Sequence[object]) -> tuple[int, int]:
    """How far a list is the history itself: entries passed, and messages passed.

    Stored system and developer messages that a filter left out are passed over. Mostly comparing is all this does, so
    that the echo a host sends every turn costs next to nothing; a message that a filter changed is read and dropped.
    """
    place = heard = 0
    while place < len(stored) and heard < len(incoming):
        entry = stored[place]
        if entry.message == incoming[heard] or _is_filtered(entry, incoming[heard]):
            heard += 1
        elif entry.role not in SYSTEM_ROLES or entry.is_redacted:  # an erased one may have an echo here
            break
        place += 1
        if place % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    if heard == len(incoming) and heard:
        while place < len(stored) and stored[place].role in SYSTEM_ROLES:
            place += 1
    return (place, heard) if heard else (0, 0)


async def align_off_loop(stored: Sequence[Entry], incoming: Sequence[ParsedMessage]) -> Alignment:
    """Line up a list with entries; a long one in a thread."""
    small = len(stored) + len(incoming) <= YIELD_EVERY
    return align(stored, incoming) if small else await in_thread(align, stored, incoming)


def _is_filtered(entry: Entry, raw: object) -> bool:
    """Is it this entry as a host's filter left it (no thinking, no null keys)? What cannot be read is not."""
    if not isinstance(raw, dict) or cast("Message", raw).get("role") != entry.role:
        return False
    try:
        return same_message(entry, *parse_message(cast(object, raw)))
    except InvalidMessage:
        return False


class ReplayDetector:
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

    def on_resume(self) -> None:
        """A history was resumed: all of it may come once more."""
        self._next, self._begins = 0, True

    def on_set_messages(self) -> None:
        """A list was made the history: its messages may come once more."""
        self._next = 0

    def on_human_message(self) -> None:
        """A human spoke: from now on, instructions are meant."""
        self._begins = False

    def stop(self) -> None:
        """None is expected any more."""
        self._next, self._begins = None, False

    async def matches(self, message: Message, info: MessageInfo) -> bool:
        """Is it one of the history's next messages?

        Only a message that carries the stored one's timestamp: a new "continue" must not pass for an old one. But for
        the instructions a history begins with: whoever resumes it gives them again, as they were at first.
        """
        stamp = timestamp_of(message)
        history = self._history()
        if stamp is None:
            return self._begins and info.role in SYSTEM_ROLES and _begins_with(history, message, info)
        first = self._next or 0
        for place in range(first, min(len(history), first + _AHEAD)):  # a filter may have left some out
            if place in history.gap:
                if not self._next:
                    return False  # nothing was recognised yet: a new message must not make a session load everything
                await self._load()  # the host replays all of it, so all of it is needed
                history = self._history()
            entry = history[place]
            if stamp == timestamp_of(entry.message) and same_message(entry, message, info):
                if self._next is not None:  # or a request was made while the history was loaded
                    self._next = place + 1
                return True
        return False


def _begins_with(history: Snapshot, message: Message, info: MessageInfo) -> bool:
    """Does a history begin with instructions that say this?"""
    for place in range(history.gap.start if history.gap else len(history)):
        entry = history[place]
        if entry.role not in SYSTEM_ROLES:
            return False
        if same_message(entry, message, info):
            return True
    return False
