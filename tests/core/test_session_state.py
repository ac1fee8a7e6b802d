"""The form of the saved state: its keys on disk stay when a field is renamed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from amplifier_context_core.compaction.checkpoint import Chapter, ChapterText, Checkpoint, DigestEntry, Fact, Segment
from amplifier_context_core.compaction.speech import Sentence
from amplifier_context_core.history.redactions import Redaction
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.meter import Correction
from amplifier_context_core.view.session_state import SessionState, UncompactedViewState, ViewState, dump, load
from amplifier_context_core.view.trigger import CompactionBackoff

# Values by position: a field may get another name, its key may not.
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
    "a counter",
    "a kind",
    1,
    2,
    3,
    4,
    (VIEW,),
    ((1_000, 0),),
    (("anthropic", "model", CORRECTION),),
    (5,),
    ((6, {"c1": "short"}),),
    {"c2": "to come"},
    (7,),
    "focus",
    8,
    9,
    ("repair",),
    (REDACTION,),
    1,
    (UncompactedViewState(500, 600, 300, BACKOFF),),
    ((6, {"c1": "at once"}),),
    {"a module": {"its own": [1]}},
    {"pool": [], "queue": [], "listed": ""},
    "injected",
)

KEPT_FACT: dict[str, Any] = {
    "head": "m2 user",
    "outcome": "ok",
    "names": ["a.py"],
    "worth": [0.5],
    "speaker": "person",
    "said": [["Never push.", 1.0]],
}
KEPT_CHAPTER: dict[str, Any] = {
    "lines": [{"first": 2, "last": 3, "turn": "u1", "facts": [KEPT_FACT], "tokens": 7, "before": 40}],
    "before": 40,
    "left_out": 1,
    "author": "summary",
    "texts": [[2, 5, "Goal: x"]],
    "beside": None,
    "made_at": 6,
}
KEPT_SEGMENT: dict[str, Any] = {
    "first": 2,
    "last": 5,
    "turn": "u1",
    "shown": [
        {
            "message": {"role": "user", "content": "x"},
            "tokens": 3,
            "seq": 5,
            "provider": "anthropic",
            "answers": "c1",
            "model": "claude",
            "prefix": "00aa",
        }
    ],
    "tokens": 3,
    "before": 9,
    "state": "folded",
    "rule": "fold",
    "round": None,
    "chapter": KEPT_CHAPTER,
    "floor": "pinned",
}
KEPT_CHECKPOINT: dict[str, Any] = {
    "covered": 4,
    "upto": 5,
    "digest": "",
    "pieces": [KEPT_SEGMENT],
    "tokens": 3,
    "made_at": 6,
    "budget": 900,
    "from_content": True,
}
KEPT_BACKOFF: dict[str, Any] = {"room": 800, "until": 700, "coverable": 4, "stuck": True}
KEPT_REDACTION: dict[str, Any] = {
    "session_id": "s",
    "seq": 7,
    "role": "user",
    "calls": ["c1"],
    "answers": ["c2"],
    "timestamp": "2026-01-01T00:00:00.000+00:00",
    "trace": "$scrypt$",
    "shares_time": True,
}
KEPT: dict[str, Any] = {
    "counter": "a counter",
    "kind": "a kind",
    "body": 1,
    "start": 2,
    "covered": 3,
    "turns_before": 4,
    "lines": [
        {
            "budget": 1_000,
            "output_limit": 400,
            "digest": "00ff",
            "checkpoint": KEPT_CHECKPOINT,
            "seqs": [[[2, 3], ["c9"]]],
            "attempt": KEPT_BACKOFF,
        }
    ],
    "serving": [[1_000, 0]],
    "corrections": [
        ["anthropic", "model", {"offset": 300.0, "ratio": 1.5, "reports": 2, "window": 4_000, "last": [10, 20]}]
    ],
    "pins": [5],
    "summaries": [[6, {"c1": "short"}]],
    "awaited": {"c2": "to come"},
    "interrupted": [7],
    "focus": "focus",
    "compactions": 8,
    "tokens_saved": 9,
    "warned": ["repair"],
    "erased": [KEPT_REDACTION],
    "version": 1,
    "starts": [{"serving": 500, "budget": 600, "output_limit": 300, "attempt": KEPT_BACKOFF}],
    "at_once": [[6, {"c1": "at once"}]],
    "items": {"pool": [], "queue": [], "listed": ""},
    "extra": {"a module": {"its own": [1]}},
    "injected": "injected",
}


def test_the_saved_state_has_these_keys_and_no_others() -> None:
    assert json.loads(dump(STATE)) == KEPT


def test_what_was_written_with_these_keys_is_read() -> None:
    read = load(json.dumps(KEPT).encode())
    assert read is not None
    assert json.loads(dump(read)) == KEPT
    assert read.views[0].checkpoint.segments == (SEGMENT,)
    assert read.views[0].backoff == BACKOFF
    assert (read.erased, read.corrections, read.uncompacted_views) == (
        STATE.erased,
        STATE.corrections,
        STATE.uncompacted_views,
    )


def test_keys_with_lone_surrogates_are_saved_as_they_are() -> None:
    arguments: dict[str, Any] = {"\ud800": {"\udfff": 1}}
    shown = replace(SHOWN, message={"role": "assistant", "content": "", "tool_calls": [{"arguments": arguments}]})
    checkpoint = replace(CHECKPOINT, segments=(replace(SEGMENT, shown=(shown,)),))
    state = replace(STATE, views=(replace(VIEW, checkpoint=checkpoint),), extra={"a module": arguments})
    read = load(dump(state))
    assert read is not None
    assert read.views[0].checkpoint.segments[0].shown[0].message == shown.message
    assert read.extra == state.extra


def test_a_message_that_was_saved_before_thinking_was_bound_is_read() -> None:
    shown = {key: value for key, value in KEPT_SEGMENT["shown"][0].items() if key not in ("model", "prefix")}
    pieces = [{**KEPT_SEGMENT, "shown": [shown]}]
    view = {**KEPT["lines"][0], "checkpoint": {**KEPT_CHECKPOINT, "pieces": pieces}}
    read = load(json.dumps({**KEPT, "lines": [view]}).encode())
    assert read is not None
    message = read.views[0].checkpoint.segments[0].shown[0]
    assert (message.provider, message.model, message.prefix) == ("anthropic", None, None)


def test_a_chapter_that_was_saved_without_its_time_is_read() -> None:
    chapter = {key: value for key, value in KEPT_CHAPTER.items() if key != "made_at"}
    pieces = [{**KEPT_SEGMENT, "chapter": chapter}]
    view = {**KEPT["lines"][0], "checkpoint": {**KEPT_CHECKPOINT, "pieces": pieces}}
    read = load(json.dumps({**KEPT, "lines": [view]}).encode())
    assert read is not None
    found = read.views[0].checkpoint.segments[0].chapter
    assert found is not None
    assert found.made_at == 0


def test_a_checkpoint_of_before_fields_were_added_is_read() -> None:
    newer = ("starts", "at_once", "items", "erased", "awaited", "focus", "injected")
    read = load(json.dumps({key: value for key, value in KEPT.items() if key not in newer}).encode())
    assert read is not None
    assert (read.uncompacted_views, read.at_once, read.erased, read.pending_summaries, read.focus, read.injected) == (
        (),
        (),
        (),
        {},
        None,
        None,
    )
