"""What a person, a host and handlers ask of all views of a session; it is saved with the session.

A compaction uses every short form of a tool result that a host registered. A view shows one at once only if it was
registered before any view showed its result: what a view has shown stays as it is until a compaction, and is shown the
same way after a resume. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from ..economics.meter import Units
from ..errors import PinRefused
from ..messages.parsing import metadata_of
from ..rendering.rounds import rounds_with
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot

Forms = dict[int, dict[str, str]]  # by seq of the result and call id


class ShortForms:
    def __init__(self) -> None:
        self.known: Forms = {}  # all of them but the pending ones
        self.at_once: Forms = {}  # those that a view shows at once
        self.pending: dict[str, str] = {}  # by call id, those of calls whose results are still to come
        self.shown_to = 0  # highest seq that a request was sent, or that a checkpoint shows

    def shown(self, seq: int) -> None:
        self.shown_to = max(self.shown_to, seq)

    def register(self, seq: int | None, call_id: str, text: str) -> bool:
        """Note the short form of a result (None: the next of the call); return True if views are to show it at once."""
        if seq is None:
            self.pending[call_id] = text
            return False
        self.known.setdefault(seq, {})[call_id] = text
        if seq <= self.shown_to:
            return False
        self.at_once.setdefault(seq, {})[call_id] = text
        return True

    def result_came(self, seq: int, call_ids: Iterable[str]) -> None:
        for call_id in call_ids:
            if call_id in self.pending:
                self.register(seq, call_id, self.pending.pop(call_id))

    def drop(self, which: Callable[[str, str], bool]) -> None:
        """Drop the short forms for which this holds, of call id and text."""
        for forms in (self.known, self.at_once):
            for seq, by_call in forms.items():
                forms[seq] = {call: text for call, text in by_call.items() if not which(call, text)}
        self.pending = {call: text for call, text in self.pending.items() if not which(call, text)}

    def clear(self) -> None:
        self.known.clear()
        self.at_once.clear()
        self.pending.clear()


class Directions:
    def __init__(self) -> None:
        self.pins: set[int] = set()  # seqs of entries that every view shows verbatim
        self.short_forms = ShortForms()
        self.focus: str | None = None  # what summaries should dwell on
        self.injected: str | None = None  # the same, of the handlers of the compaction that was accepted last
        self.focus_drops = 0  # times that both were dropped by a command: what quotes an earlier one is out of date

    def drop_focus(self) -> None:
        self.focus = self.injected = None
        self.focus_drops += 1

    def clear(self) -> None:
        self.pins.clear()
        self.short_forms.clear()
        self.drop_focus()


def check_pin(
    entry: Entry, history: Snapshot, pins: Collection[int], *, capacity: int, units: Units, pin_share: float
) -> None:
    """Raises `PinRefused`: pins outgrow their share of the capacity together with this entry."""
    share = int(capacity * pin_share)
    in_history = {one.seq for one in history if metadata_of(one.message).get("pinned") is True}
    others = in_history.union(pins) - {entry.seq}
    rounds = rounds_with({entry.seq, *others}, history)
    held = {id(rounds[seq]): rounds[seq] for seq in others if seq in rounds}  # each once: it is pinned as a whole
    taken = sum(round_.tokens for round_ in held.values())
    own = rounds[entry.seq]
    needed = 0 if id(own) in held else own.tokens
    if taken + needed > share:
        named = entry.mark if needed == entry.tokens else f"{entry.mark} with its round"
        raise PinRefused(
            f"{named} has {units.part(needed):,} tokens; pins hold {units.part(taken):,} of the "
            f"{units.part(share):,} they may fill ({pin_share:.0%} of the {units.part(capacity):,} that "
            "messages may have, `pin_share`)"
        )


def calls_of_operations(history: Snapshot, operations: object) -> frozenset[int]:
    """Return the seqs of the calls that hosts name as active, and of their results, as far as they are loaded.

    `operations`: what the capability ``context.active_operations`` returned: a list of mappings with ``call_id``. Any
    other value means that there are none.
    """
    listed = cast("Sequence[object]", operations) if isinstance(operations, (list, tuple)) else ()
    calls = [cast("Mapping[str, object]", one).get("call_id") for one in listed if isinstance(one, Mapping)]
    ids = {call for call in calls if isinstance(call, str)}
    found: set[int] = set()
    for index in range(len(history) - 1, -1, -1):
        if not ids or index in history.gap:
            break
        if ids.intersection((*history[index].call_ids, *history[index].answered_ids)):
            found.add(history[index].seq)
            ids.difference_update(history[index].call_ids)
    return frozenset(found)
