"""What a session keeps beside its history, as bytes: checkpoints, the meter, pins and short forms.

A resumed session goes on from these as if it had never stopped. Of the rounds a checkpoint shows, only the seqs are
written: their entries are in the store. Nothing here is needed to read a history; what cannot be read is made anew.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from ..compaction.checkpoint import Checkpoint, Segment
from ..history.redactions import Erasure
from ..rendering.rounds import Round
from ..stores.codec import loads, message_json
from ..transcript.transcript import Entry
from .meter import Correction
from .view import CompactionBackoff

VERSION = 1  # of what is written; another one is not read


@dataclass(frozen=True, slots=True)
class ViewState:
    """A line as it is kept; see `View`.

    Attributes:
        budget: tokens of the requests it was made for.
        output_limit: tokens above which a single tool output is clipped.
        digest: hash of what its checkpoint covers, in hexadecimal.
        checkpoint: its checkpoint, without that hash and without the rounds of its segments; see `with_rounds`.
        seqs: for each segment, the seqs of its round (empty for a chapter), and the ids of its unanswered calls.
        backoff: the last attempt to compact it.
    """

    budget: int
    output_limit: int
    digest: str
    checkpoint: Checkpoint
    seqs: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
    backoff: Annotated[CompactionBackoff | None, Field(alias="attempt")] = None


@dataclass(frozen=True, slots=True)
class UncompactedViewState:
    """How a view without a checkpoint was made, so that it is made the same way after a resume.

    Attributes:
        serving: budget it served (tokens).
        budget: tokens of the requests it was made for.
        output_limit: tokens above which a single tool output is clipped.
        backoff: the last attempt to compact it.
    """

    serving: int
    budget: int
    output_limit: int
    backoff: Annotated[CompactionBackoff | None, Field(alias="attempt")] = None


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything beside the history.

    Attributes:
        counter: what counted tokens.
        kind: what must be the same for the checkpoints to be reused as they are.
        body: leading instructions of the history.
        start: place of the first entry that is needed to go on; those before it are behind all checkpoints.
        covered: entries that one of the checkpoints stands for, at the most.
        turns_before: exchanges that begin before it.
        lines: the lines in use.
        serving: budget -> index of the line that served it last.
        starts: the views in use that have no checkpoint yet.
        at_once: the short forms that a view shows at once; see `ShortForms`.
        corrections: what the meter learned, by provider and model.
        pins: seqs pinned by command.
        summaries: short forms of tool results, by seq and call id.
        awaited: those of calls whose results are still to come.
        interrupted: turns whose open calls were stopped.
        focus: what a summary should dwell on.
        compactions: accepted so far.
        tokens_saved: that they freed together.
        warned: kinds of trouble that were reported.
        erased: what echoes of erased entries are recognised by.
        version: of this form.
    """

    counter: str
    kind: str
    body: int = 0
    start: int = 0
    covered: int = 0
    turns_before: int = 0
    lines: tuple[ViewState, ...] = ()
    serving: tuple[tuple[int, int], ...] = ()
    corrections: tuple[tuple[str, str, Correction], ...] = ()
    pins: tuple[int, ...] = ()
    summaries: tuple[tuple[int, dict[str, str]], ...] = ()
    awaited: dict[str, str] = field(default_factory=dict[str, str])
    interrupted: tuple[int, ...] = ()
    focus: str | None = None
    compactions: int = 0
    tokens_saved: int = 0
    warned: tuple[str, ...] = ()
    erased: tuple[Erasure, ...] = ()
    version: int = VERSION
    starts: tuple[UncompactedViewState, ...] = ()
    at_once: tuple[tuple[int, dict[str, str]], ...] = ()

    @property
    def needed(self) -> frozenset[int]:
        """Seqs of the entries that the checkpoints show."""
        return frozenset(seq for line in self.lines for seqs, _ in line.seqs for seq in seqs)


_PLACE_IN_MEMORY = re.compile(r" at 0x[0-9a-fA-F]+")
_ADAPTER = TypeAdapter(SessionState)


def view_state(budget: int, output_limit: int, checkpoint: Checkpoint, backoff: CompactionBackoff | None) -> ViewState:
    """A line's figures, with the seqs of what its checkpoint shows."""
    seqs = tuple(
        (tuple(entry.seq for entry in segment.round.entries), segment.round.unanswered) if segment.round else ((), ())
        for segment in checkpoint.segments
    )
    segments = tuple(replace(segment, round=None) for segment in checkpoint.segments)
    bare = replace(checkpoint, digest=b"", segments=segments)
    return ViewState(budget, output_limit, checkpoint.digest.hex(), bare, seqs, backoff)


def with_rounds(line: ViewState, entries: Mapping[int, Entry]) -> Checkpoint:
    """The line's checkpoint, whole.

    Raises:
        KeyError: an entry it shows is not among these.
    """
    segments: list[Segment] = []
    for segment, (seqs, unanswered) in zip(line.checkpoint.segments, line.seqs, strict=True):
        held = Round(tuple(entries[seq] for seq in seqs), unanswered) if seqs else None
        segments.append(replace(segment, round=held))
    return replace(line.checkpoint, digest=bytes.fromhex(line.digest), segments=tuple(segments))


def counter_name(counter: object) -> str:
    """What a counter calls itself; where it is in memory says nothing."""
    return _PLACE_IN_MEMORY.sub("", repr(counter))


def dump(saved: SessionState) -> bytes:
    """As bytes."""
    return message_json(_ADAPTER.dump_python(saved, mode="json", by_alias=True))


def load(data: bytes) -> SessionState | None:
    """From bytes; None when they are somebody else's (the compat room's, say).

    Raises:
        ValueError: they are of another version, or damaged.
    """
    try:
        read: object = loads(data)
        if isinstance(read, dict) and "version" not in read:
            return None
        saved = _ADAPTER.validate_python(read)
    except ValidationError as problem:
        raise ValueError(f"not what was saved: {problem.error_count()} errors") from None
    if saved.version != VERSION:
        raise ValueError(f"of version {saved.version}, not {VERSION}")
    return saved
