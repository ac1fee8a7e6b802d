"""What a person, a host and handlers ask of all views of a session; it is saved with the session.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from .short_forms import ShortForms


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
