"""Whether what a host hands in is stored already: the beginning of a list, or a message of a replayed history.

What is compared is described in `alignment`. Long lists are compared in slices, or in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from ..errors import InvalidMessage
from ..futures import YIELD_EVERY, LoopTurns, in_thread, in_thread_if
from ..messages.parsing import (
    INTERRUPTED,
    NO_RESULT,
    SYSTEM_ROLES,
    Message,
    MessageInfo,
    ParsedMessage,
    parse_message,
    result_text,
    results_of,
)
from ..messages.timestamps import timestamp_of
from .alignment import Order, align, same_message
from .entry import Entry
from .returned_views import HandedViews, holds_chapters, recognise, without_erased_forms
from .transcript import Snapshot

MAX_SKIPPED = 50  # messages a host may have left out when it replays a history


async def matching_prefix(stored: Snapshot, incoming: Sequence[object]) -> tuple[int, int]:
    """Return how many entries and how many messages the common prefix of a history and a list has.

    Stored system and developer messages that a filter left out are skipped. An equal message is only compared, so the
    echo that a host sends every turn is cheap. A message that a filter changed is parsed as well.
    """
    index = matched = 0
    turns = LoopTurns()
    while index < len(stored) and matched < len(incoming):
        entry = stored[index]
        if entry.message == incoming[matched] or _is_filtered(entry, incoming[matched]):
            matched += 1
        elif entry.role not in SYSTEM_ROLES or entry.is_redacted:  # a redacted one may have an echo here
            break
        index += 1
        await turns.give()
    if matched == len(incoming) and matched:
        while index < len(stored) and stored[index].role in SYSTEM_ROLES:
            index += 1
    return (index, matched) if matched else (0, 0)


async def alignment_of(
    stored: Snapshot,
    incoming: Sequence[object],
    views: HandedViews | None,
    without_echoes: Callable[[Sequence[ParsedMessage]], Awaitable[Sequence[ParsedMessage]]],
) -> tuple[int, Order] | None:
    """Return how many entries a list leaves as they are at the start, and what becomes of the others.

    Args:
        stored: all of it is loaded.
        views: that were handed out; the list may be one of them. None if they are not known yet.
        without_echoes: returns new messages with the redacted form in place of each echo of a redacted entry.

    Returns:
        None if it depends on the views, and they are not known yet.

    Raises:
        InvalidMessage: a message of the list cannot be stored; its index and its field are named.
    """
    same, matched = await matching_prefix(stored, incoming)
    if same == len(stored) and matched == len(incoming):
        return same, []
    only_adds = same == len(stored) == matched
    rest = await parse_all(incoming[matched:], matched) if only_adds or views else []
    may_be_view = not only_adds or any(_is_placeholder(message) for message, _ in rest[:1])
    if views is None and may_be_view:
        return None
    if views:
        rest = without_erased_forms(stored, rest, views)
    if views and views.views and (may_be_view or holds_chapters(rest, views)):
        all_ = [*await parse_all(incoming[:matched]), *rest]
        found = await _aligned(all_, lambda items: in_thread(recognise, stored[:], items, views), without_echoes)
        if found is not None:
            return 0, found
    left = stored[same:]
    is_long = len(left) + len(rest) > YIELD_EVERY
    found = await _aligned(rest, lambda items: in_thread_if(is_long, align, left, items), without_echoes)
    return same, found or []


async def _aligned(
    items: Sequence[ParsedMessage],
    align: Callable[[Sequence[ParsedMessage]], Awaitable[Order | None]],
    without_echoes: Callable[[Sequence[ParsedMessage]], Awaitable[Sequence[ParsedMessage]]],
) -> Order | None:
    """The redacted form is in place of each echo of a redacted entry."""
    found = await align(items)
    new = [item for item in found or () if not isinstance(item, Entry)]
    known = await without_echoes(new) if new else new
    if all(one is other for one, other in zip(new, known, strict=True)):
        return found
    instead = {id(item): other for item, other in zip(new, known, strict=True)}
    return await align([instead.get(id(item), item) for item in items])


async def parse_all(incoming: Sequence[object], start: int = 0) -> list[ParsedMessage]:
    """`start` is the index of the first message in its list. Raises `InvalidMessage`: one of them cannot be stored; its
    index and its field are named.
    """
    read: list[ParsedMessage] = []
    turns = LoopTurns()
    for index, raw in enumerate(incoming, start):
        try:
            read.append(parse_message(raw))
        except InvalidMessage as problem:
            field, _, rest = str(problem).partition(": ")
            text = rest.removesuffix("; the message was not stored")
            raise InvalidMessage(f"messages[{index}].{field}", text) from None
        await turns.give()
    return read


def _is_placeholder(message: Message) -> bool:
    """True for what a view that shows all of a history has after it, while a result is still to come."""
    texts = (result_text(result.content) for result in results_of(message))
    return any(text in (NO_RESULT, INTERRUPTED) for text in texts)


def _is_filtered(entry: Entry, raw: object) -> bool:
    """True if it is this entry after a host's filter (no thinking, no null keys). False if it cannot be parsed."""
    if not isinstance(raw, dict) or cast("Message", raw).get("role") != entry.role:
        return False
    try:
        return same_message(entry, *parse_message(cast(object, raw)))
    except InvalidMessage:
        return False


class ReplayDetector:
    """Detects a host that replays a stored history, message by message.

    A replay begins before the first request, if at all. After a request no replay is expected. `load` loads all of the
    history into memory.
    """

    def __init__(self, history: Callable[[], Snapshot], load: Callable[[], Awaitable[None]]) -> None:
        self._history, self._load = history, load
        self._next: int | None = None  # index of the message that may come next; None if no replay is expected
        self._begins = False  # a resumed history of which only instructions were replayed so far

    @property
    def is_expected(self) -> bool:
        return self._next is not None

    def on_resume(self) -> None:
        self._next, self._begins = 0, True

    def on_set_messages(self) -> None:
        self._next = 0

    def on_human_message(self) -> None:
        """Instructions are new ones from now on."""
        self._begins = False

    def stop(self) -> None:
        self._next, self._begins = None, False

    async def matches(self, message: Message, info: MessageInfo) -> bool:
        """True if the message is one of the next messages of the history.

        It must have the timestamp of the stored message, so that a new "continue" is not taken for an old one. Only the
        leading instructions are recognised without: a host that resumes gives them again, as they were at first.
        """
        stamp = timestamp_of(message)
        history = self._history()
        if stamp is None:
            return self._begins and info.role in SYSTEM_ROLES and _begins_with(history, message, info)
        first = self._next or 0
        for index in range(first, min(len(history), first + MAX_SKIPPED)):  # a filter may have left some out
            if index in history.gap:
                if not self._next:
                    return False  # no replay was recognised yet: a new message must not make a session load everything
                await self._load()  # the host replays all of it, so all of it is needed
                history = self._history()
            entry = history[index]
            if stamp == timestamp_of(entry.message) and same_message(entry, message, info):
                if self._next is not None:  # None if a request was made while the history was loaded
                    self._next = index + 1
                return True
        return False


def _begins_with(history: Snapshot, message: Message, info: MessageInfo) -> bool:
    for index in range(history.gap.start if history.gap else len(history)):
        entry = history[index]
        if entry.role not in SYSTEM_ROLES:
            return False
        if same_message(entry, message, info):
            return True
    return False
