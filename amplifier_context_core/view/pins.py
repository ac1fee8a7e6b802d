"""How much of a view pins may fill. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection

from ..economics.meter import Units
from ..errors import PinRefused
from ..messages.parsing import metadata_of
from ..rendering.rounds import rounds_with
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot


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
