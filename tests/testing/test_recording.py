"""Recordings as sessions: what is kept, and what is bent and noted."""

from __future__ import annotations

from pathlib import Path

from amplifier_context_testing import Recording, Transcript, conversations, prepare
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.checks.corpus import conversation
from amplifier_context_testing.replay.answer_policies import MISSING
from amplifier_context_testing.replay.recording import AT_THE_END, CUT_IN, GO_ON


def test_an_ordinary_session_needs_no_bending() -> None:
    talk = ConversationBuilder("kernel").system("S.").user("Go.").work(3, "plain").say("Done.").user("More.").say("No.")
    recording = Recording.of(talk.messages)
    assert recording.notes == ()
    assert recording.prompts == ("Go.", "More.")
    assert [message["content"] for message in recording.system] == ["S."]
    assert [bool(answer.calls) for answer in recording.answers] == [True, True, True, False, False]
    assert recording.tools == ("read", "search")


def test_calls_carry_the_results_that_answer_them_by_position() -> None:
    recording = Recording.of(conversation("reused_call_ids").messages)
    results = [call.result for answer in recording.answers for call in answer.calls]
    assert results == [f"flight {turn}: {'booked' if turn % 2 else 'open'}" for turn in range(5)]


def test_late_results_are_found_and_missing_ones_marked() -> None:
    late = Recording.of(conversation("late_results").messages)
    assert [call.result for call in late.answers[0].calls] == ["build finished: 0 errors", "12:00"]
    missing = Recording.of(conversation("missing_results").messages)
    assert missing.answers[0].calls[1].result is MISSING
    assert any("no recorded result" in note for note in missing.notes)


def test_a_message_in_the_middle_of_a_turn_ends_that_turn() -> None:
    talk = ConversationBuilder().user("Go.")
    talk.call(("read", {"path": "a"}))
    recording = Recording.of(talk.user("Stop.").say("Stopped.").messages)
    assert [answer.text for answer in recording.answers] == ["", CUT_IN, "Stopped."]
    assert recording.prompts == ("Go.", "Stop.")


def test_an_assistant_message_without_a_prompt_gets_a_prompt_to_go_on() -> None:
    recording = Recording.of(ConversationBuilder().user("Go.").say("One.").say("Two.").messages)
    assert recording.prompts == ("Go.", GO_ON)


def test_users_in_a_row_are_one_prompt_and_unanswered_ones_get_an_end() -> None:
    recording = Recording.of(ConversationBuilder().user("A.").user("B.").say("C.").user("D.").messages)
    assert recording.prompts == ("A.\n\nB.", "D.")
    assert recording.answers[-1].text == AT_THE_END


def test_prompts_hold_no_lone_surrogates() -> None:
    recording = Recording.of(conversation("lone_surrogates").messages)
    assert all(prompt.encode() for prompt in recording.prompts)


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
