"""What a session keeps beside its history, as bytes: checkpoints, the meter's corrections, pins and short forms.

A resumed session continues from these as if it had never stopped. Of the rounds that a checkpoint shows, only the seqs
are written: their entries are in the store. Nothing here is needed to read a history. State that cannot be read is left
out, and the view is made from the whole history.

Field names are keys on disk: to rename one takes a new version. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from ..compaction.checkpoint import Checkpoint, Segment
from ..economics.meter import Correction
from ..economics.trigger import CompactionBackoff
from ..history.redactions import Redaction
from ..rendering.rounds import Round
from ..stores.codec import loads
from ..transcript.entry import Entry
from .first_state import from_version_1
from .view import View

VERSION = 2  # of what is written; version 1 is read, another one is not


@dataclass(frozen=True, slots=True)
class ViewState:
    budget: int
    output_limit: int
    digest: str  # hash of what its checkpoint covers, in hexadecimal
    checkpoint: Checkpoint  # without that hash and without the rounds of its segments; see `rehydrate`
    # For each segment, the seqs of its round (empty for a chapter), and the ids of its unanswered calls.
    seqs: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
    backoff: CompactionBackoff | None = None


@dataclass(frozen=True, slots=True)
class UncompactedViewState:
    """How a view without a checkpoint was made, so that it is made the same way after a resume."""

    served_budget: int
    budget: int
    output_limit: int
    backoff: CompactionBackoff | None = None


@dataclass(frozen=True, slots=True)
class SavedItems:
    pool: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    queue: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    listed: str = ""  # the last list of them in the history
    lines: int = 0  # number of lines that it shows


@dataclass(frozen=True, slots=True)
class SessionState:
    counter: str
    compatibility_key: str
    leading_count: int = 0
    tail_start: int = 0  # index of the first entry that is needed to continue; all checkpoints cover those before it
    covered_count: int = 0  # entries that the newest of the checkpoints covers
    turns_before: int = 0  # turns that begin before `tail_start`
    views: tuple[ViewState, ...] = ()
    by_budget: tuple[tuple[int, int], ...] = ()  # budget -> index of the view that served it last
    corrections: tuple[tuple[str, str, Correction], ...] = ()
    pins: tuple[int, ...] = ()
    # By seq and call id; `pending_summaries` by call id, see `ShortForms`.
    short_forms: tuple[tuple[int, dict[str, str]], ...] = ()
    pending_summaries: dict[str, str] = field(default_factory=dict[str, str])
    interrupted: tuple[int, ...] = ()  # turns whose open calls were stopped
    focus: str | None = None
    compactions: int = 0
    tokens_saved: int = 0
    warnings_sent: tuple[str, ...] = ()
    erased: tuple[Redaction, ...] = ()  # what echoes of erased entries are recognised by
    version: int = VERSION
    uncompacted_views: tuple[UncompactedViewState, ...] = ()
    at_once: tuple[tuple[int, dict[str, str]], ...] = ()
    # What a module keeps beside this, by the name of the module. JSON.
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    items: SavedItems | None = None
    injected: str | None = None  # what handlers of the compaction that was accepted last want a summary to dwell on
    cleared_seq: int = 0  # the highest seq when the history was cleared last; 0 if it never was
    log: tuple[dict[str, Any], ...] = ()

    @property
    def shown_seqs(self) -> frozenset[int]:
        return frozenset(seq for view in self.views for seqs, _ in view.seqs for seq in seqs)


_PLACE_IN_MEMORY = re.compile(r" at 0x[0-9a-fA-F]+")


def view_state(view: View, checkpoint: Checkpoint) -> ViewState:
    seqs = tuple(
        (tuple(entry.seq for entry in segment.round.entries), segment.round.unanswered) if segment.round else ((), ())
        for segment in checkpoint.segments
    )
    segments = tuple(replace(segment, round=None) for segment in checkpoint.segments)
    bare = replace(checkpoint, digest=b"", segments=segments)
    return ViewState(view.budget, view.output_limit, checkpoint.digest.hex(), bare, seqs, view.backoff)


def rehydrate(state: ViewState, entries: Mapping[int, Entry]) -> Checkpoint:
    """Raises `KeyError`: an entry that the checkpoint shows is not among these."""
    segments: list[Segment] = []
    for segment, (seqs, unanswered) in zip(state.checkpoint.segments, state.seqs, strict=True):
        round_ = Round(tuple(entries[seq] for seq in seqs), unanswered) if seqs else None
        segments.append(replace(segment, round=round_))
    return replace(state.checkpoint, digest=bytes.fromhex(state.digest), segments=tuple(segments))


def counter_name(counter: object) -> str:
    """An address in memory is left out."""
    return _PLACE_IN_MEMORY.sub("", repr(counter))


def dump(state: SessionState) -> bytes:
    try:
        return orjson.dumps(state, default=_plain)
    except (orjson.JSONEncodeError, UnicodeError):  # lone surrogates, which messages and items may have
        return json.dumps(state, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):  # the digest of a checkpoint, which is empty here
        return value.decode()
    if isinstance(value, tuple):  # with names: orjson takes none
        return tuple(cast("tuple[Any, ...]", value))
    return {one.name: getattr(value, one.name) for one in fields(value)}  # json takes no dataclass


def load(data: bytes) -> SessionState | None:
    """Return None when another module wrote the bytes, such as a manager of `compat`. Raises `ValueError`: they are of
    another version, or damaged.
    """
    try:
        read: object = loads(data)
        if isinstance(read, dict):
            given = cast("dict[str, Any]", read)
            if "version" not in given:
                return None
            read = from_version_1(given) if given["version"] == 1 else given
            if given["version"] not in (1, VERSION):
                raise ValueError(f"of version {given['version']}, not {VERSION}")
        return _adapter().validate_python(read)
    except ValidationError as problem:
        raise ValueError(f"no session state: {problem.error_count()} errors") from None


@cache
def _adapter() -> TypeAdapter[SessionState]:
    """Make it with the first state that is read, not before: it takes fifteen milliseconds."""
    return TypeAdapter(SessionState)
