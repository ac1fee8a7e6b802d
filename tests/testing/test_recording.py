"""Recordings as sessions: what is kept, and what is bent and noted."""

from __future__ import annotations

from pathlib import Path

from amplifier_context_testing import Recording, Transcript, conversations, prepare
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.checks.corpus import conversation
from amplifier_context_testing.replay.answer_policies import MISSING


def test_late_results_are_found_and_missing_ones_marked() -> None:
    late = Recording.of(conversation("late_results").messages)
    assert [call.result for call in late.answers[0].calls] == ["build finished: 0 errors", "12:00"]
    missing = Recording.of(conversation("missing_results").messages)
    assert missing.answers[0].calls[1].result is MISSING
    assert any("no recorded result" in note for note in missing.notes)


def test_the_whole_corpus_can_be_prepared() -> None:
    for found in conversations():
        prepared = prepare(Transcript(found.name, "corpus", found.messages))
        assert len(prepared.recording.answers) >= len(prepared.prompts), found.name


def test_the_plan_names_the_file_when_there_is_one_and_holds_the_messages_else(tmp_path: Path) -> None:
    messages = ConversationBuilder().user("Go.").say("Done.").messages
    inline = prepare(Transcript("t", "s", messages), check=True).provider["config"]
    assert inline == {"messages": messages, "check": True}
    filed = prepare(Transcript("t", "s", messages, path=tmp_path / "x.jsonl"))
    assert filed.provider["config"] == {"transcript": str(tmp_path / "x.jsonl"), "id": "t"}
    plan = filed.plan({"module": "context-simple", "config": {"max_tokens": 9}}, window=1000, check=True)
    assert plan["session"]["context"] == {"module": "context-simple", "config": {"max_tokens": 9}}
    assert plan["providers"][0]["config"]["context_window"] == 1000
    assert "context_window" not in filed.provider["config"]
