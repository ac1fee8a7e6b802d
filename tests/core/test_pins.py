"""What a pin costs: the history is read a few times, however many messages are pinned already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amplifier_context_core.economics.meter import Units
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view.directions import check_pin
from tests.core.drafts import transcript
from tests.messages import user

MESSAGES = 3_000


class CountingSnapshot(Snapshot):
    """A history that counts how many of its entries are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Iterator[Entry]:
        for entry in super().__iter__():
            self.read += 1
            yield entry


def test_a_pin_reads_each_message_a_few_times_however_many_are_pinned() -> None:
    entries = list(transcript(user() for _ in range(MESSAGES)).snapshot())
    history = CountingSnapshot(entries, MESSAGES, 0)
    check_pin(entries[1_500], history, range(1, MESSAGES + 1), capacity=10_000_000, units=Units(), pin_share=0.9)
    assert MESSAGES <= history.read <= 3 * MESSAGES
