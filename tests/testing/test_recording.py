"""Recordings as sessions: what is kept, and what is bent."""

from __future__ import annotations

from amplifier_context_testing import Recording, Transcript, conversations, prepare
from amplifier_context_testing.checks.corpus import conversation
from amplifier_context_testing.replay.answer_policies import MISSING


def test_late_results_are_found_and_missing_ones_marked() -> None:
    late = Recording.of(conversation("late_results").messages)
    assert [call.result for call in late.answers[0].calls] == ["build finished: 0 errors", "12:00"]
    missing = Recording.of(conversation("missing_results").messages)
    assert missing.answers[0].calls[1].result is MISSING


def test_the_whole_corpus_can_be_prepared() -> None:
    for found in conversations():
        prepared = prepare(Transcript(found.name, "corpus", found.messages))
        assert len(prepared.recording.answers) >= len(prepared.prompts), found.name
