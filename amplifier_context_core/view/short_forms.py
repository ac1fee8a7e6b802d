"""Short forms of tool results that a host registered for one session.

A compaction uses every short form. A view shows one at once only if it was registered before any view showed its
result: what a view has shown stays as it is until a compaction, and is shown the same way after a resume.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Forms = dict[int, dict[str, str]]  # by seq of the result and call id


class ShortForms:
    def __init__(self) -> None:
        self.known: Forms = {}  # all of them but the pending ones
        self.at_once: Forms = {}  # those that a view shows at once
        self.pending: dict[str, str] = {}  # by call id, those of calls whose results are still to come
        self.shown_to = 0  # highest seq that a request was sent, or that a checkpoint shows

    def __bool__(self) -> bool:
        return bool(self.known)

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

    def restore(
        self,
        known: Iterable[tuple[int, dict[str, str]]],
        at_once: Iterable[tuple[int, dict[str, str]]],
        pending: Mapping[str, str],
    ) -> None:
        self.known.update(known)
        self.at_once.update(at_once)
        self.pending.update(pending)
