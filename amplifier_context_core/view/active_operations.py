"""Calls whose work goes on after their result: a view must not lose the handles that the results gave.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ..transcript.transcript import Snapshot


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
