"""The form of the saved state: its keys on disk, and those of version 1."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from amplifier_context_core.compaction.checkpoint import Chapter, ChapterText, Checkpoint, DigestEntry, Fact, Segment
from amplifier_context_core.compaction.speech import Sentence
from amplifier_context_core.economics.meter import Correction
from amplifier_context_core.economics.trigger import CompactionBackoff
from amplifier_context_core.history.redactions import Redaction, settings_of
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.session_state import (
    SavedItems,
    SessionState,
    UncompactedViewState,
    ViewState,
    dump,
    load,
)

FACT = Fact("m2 user", "ok", ("a.py",), (0.5,), "person", (Sentence("Never push.", 1.0),))
ENTRY = DigestEntry(2, 3, "u1", (FACT,), 7, 40)
CHAPTER = Chapter((ENTRY,), 40, 1, "summary", (ChapterText(2, 5, "Goal: x"),), made_at=6)
SHOWN = RenderedMessage({"role": "user", "content": "x"}, 3, 5, "anthropic", "c1", "claude", "00aa")
SEGMENT = Segment(2, 5, "u1", (SHOWN,), 3, 9, "folded", "fold", None, CHAPTER, "pinned")
CHECKPOINT = Checkpoint(4, 5, b"", (SEGMENT,), 3, 6, 900, True)
BACKOFF = CompactionBackoff(800, 700, 4, True)
VIEW = ViewState(1_000, 400, "00ff", CHECKPOINT, (((2, 3), ("c9",)),), BACKOFF)
CORRECTION = Correction(300.0, 1.5, 2, 4_000, (10, 20))
REDACTION = Redaction("s", 7, "user", ("c1",), ("c2",), "2026-01-01T00:00:00.000+00:00", "$scrypt$", True)
STATE = SessionState(
    *("a counter", "a kind", 1, 2, 3, 4, (VIEW,), ((1_000, 0),), (("anthropic", "model", CORRECTION),), (5,)),
    *(((6, {"c1": "short"}),), {"c2": "to come"}, (7,), "focus", 8, 9, ("repair",), (REDACTION,), 2),
    *((UncompactedViewState(500, 600, 300, BACKOFF),), ((6, {"c1": "at once"}),), {"a module": {"its own": [1]}}),
    *(SavedItems([{"id": "a"}], [{"id": "b"}], "- a", 1), "injected", 6, ({"trigger": "manual", "at": "2026"},)),
)
# What version 1 called keys of version 2, in the order of KEYS.
FORMER = {
    "compatibility_key": "kind", "leading_count": "body", "tail_start": "start", "covered_count": "covered",
    "views": "lines", "by_budget": "serving", "short_forms": "summaries", "pending_summaries": "awaited",
    "warnings_sent": "warned", "uncompacted_views": "starts", "served_budget": "serving", "backoff": "attempt",
    "capacity": "room", "retry_at_tokens": "until", "compactable_count": "coverable", "infeasible": "stuck",
    "segments": "pieces", "original_tokens": "before", "protected_because": "floor", "stored_call_id": "answers",
    "entries": "lines", "subject": "head", "scores": "worth", "sentences": "said", "call_ids": "calls",
    "answered_ids": "answers",
}  # fmt: skip


def as_version_1(saved: Any) -> Any:
    if isinstance(saved, list):
        return [as_version_1(one) for one in saved]
    if not isinstance(saved, dict):
        return saved
    return {
        FORMER.get(key, key): as_version_1(value) for key, value in saved.items() if key not in ("cleared_seq", "log")
    }


FIRST: dict[str, Any] = {**as_version_1(json.loads(dump(STATE))), "version": 1}
KEYS = {
    SessionState: "counter compatibility_key leading_count tail_start covered_count turns_before views by_budget "
    "corrections pins short_forms pending_summaries interrupted focus compactions tokens_saved warnings_sent erased "
    "version uncompacted_views at_once extra items injected cleared_seq log",
    ViewState: "budget output_limit digest checkpoint seqs backoff",
    UncompactedViewState: "served_budget budget output_limit backoff",
    CompactionBackoff: "capacity retry_at_tokens compactable_count infeasible",
    Checkpoint: "covered upto digest segments tokens made_at budget from_content",
    Segment: "first last turn shown tokens original_tokens state rule round chapter protected_because",
    RenderedMessage: "message tokens seq provider stored_call_id model prefix",
    Chapter: "entries original_tokens left_out author texts beside made_at",
    DigestEntry: "first last turn facts tokens original_tokens",
    SavedItems: "pool queue listed lines",
    Fact: "subject outcome names scores speaker sentences changed",
    Correction: "offset ratio reports window last",
    Redaction: "session_id seq role call_ids answered_ids timestamp trace shares_time",
}


def test_the_saved_state_has_these_keys() -> None:
    """To change one takes a new version."""
    assert {kind: " ".join(one.name for one in fields(kind)) for kind in KEYS} == KEYS


def test_what_was_saved_is_read_and_a_state_of_another_version_is_refused_by_its_number() -> None:
    read = load(dump(STATE))
    assert dump(read) == dump(STATE)
    assert read.views[0].checkpoint.segments == (SEGMENT,)
    assert (read.erased, read.corrections) == (STATE.erased, STATE.corrections)
    with pytest.raises(ValueError, match="of version 3, not 2"):
        load(b'{"version": 3}')


def test_what_version_1_saved_is_read() -> None:
    assert dump(load(json.dumps(FIRST).encode())) == dump(replace(STATE, cleared_seq=0, log=())), (
        "it did not note what was cleared"
    )


def test_a_state_of_version_1_whose_parts_are_something_else_is_refused() -> None:
    for key in FIRST.keys() - {"version", "extra", "items"}:
        with pytest.raises(ValueError, match="no session state"):
            load(json.dumps({**FIRST, key: {"a": [3]}}).encode())


def test_keys_with_lone_surrogates_are_saved_as_they_are() -> None:
    arguments: dict[str, Any] = {"\ud800": {"\udfff": 1}}
    assert load(dump(replace(STATE, extra={"a module": arguments}))).extra == {"a module": arguments}


def test_a_planted_trace_costs_nothing() -> None:
    salt, digest = "A" * 22, "A" * 43
    for cost in ("ln=31,r=8,p=1", "ln=15,r=99,p=1", "ln=15,r=8,p=99", "ln=0,r=8,p=1", "ln=15,r=0,p=1", "ln=15,r=8,p=0"):
        assert settings_of(f"$scrypt${cost}${salt}${digest}") is None
    assert settings_of(f"$scrypt$ln=15,r=8,p=3${salt}${digest}") == (bytes(16), (15, 8, 3))
