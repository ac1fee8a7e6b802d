"""What a compaction of a view works on, and how what it made of that becomes a checkpoint.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..compaction.checkpoint import Draft, Segment
from .carried import Carried


@dataclass(frozen=True, slots=True)
class ViewDraft:
    """What a compaction of a view works on.

    What the carrier that is sent replaces is no part of the draft; `whole` adds it again.

    Attributes:
        draft: the segments that a compaction may change.
        open_rounds: the segments after the draft. A checkpoint of them would keep placeholders for missing results.
        cost: tokens of the draft's segments as they are sent now.
        covered: entries, counted from the first after the system prompt, that a checkpoint covers.
        originals: the segments before the open rounds, as the view shows them.
        carried: the carriers of the view.
    """

    draft: Draft
    open_rounds: Sequence[Segment]
    cost: int
    covered: int
    originals: Sequence[Segment]
    carried: Carried

    def whole(self, made: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint from what a compaction made of the draft."""
        before, _ = self.carried.parted(self.originals)
        return tuple(self.carried.whole(before, self.originals, made))
