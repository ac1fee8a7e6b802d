"""Laws of rounds and of rendering them: any conversation, in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import NOTE_METADATA, Renderer
from amplifier_context_core.rendering.rounds import RoundList, rounds_of
from amplifier_context_core.transcript.entry import Entry
from tests.core.drafts import transcript
from tests.messages import block, call, says, user

from .histories import Message, conversations, flat


def entries_of(messages: list[Message]) -> list[Entry]:
    return list(transcript(messages).snapshot())


def shown(messages: list[Message]) -> list[Message]:
    renderer = Renderer(approx_token_counter, 1 << 40)
    entries = entries_of(messages)
    for entry in entries:
        renderer.register_calls(entry)
    view: list[Message] = []
    for round_ in rounds_of(entries):
        for one in renderer.render(round_).messages:
            assert one.tokens == count_message_tokens(one.message)
            view.append(one.message)
    return view


OUTPUT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
RETIRED_CALL_ANSWERED_TWICE: list[list[Message]] = [
    [user("task")],
    [call("a", metadata={"amplifier:instruction": {"disposition": "retired"}}), user([OUTPUT] * 2)],
]


@given(conversations())
@example(RETIRED_CALL_ANSWERED_TWICE)
def test_every_entry_is_in_one_round_and_every_call_answered_in_its_own(steps: list[Any]) -> None:
    """Rounds that grow entry by entry are the rounds of the whole."""
    entries, grown = entries_of(flat(steps)), RoundList()
    for place, entry in enumerate(entries, 1):
        before = list(grown.rounds)
        changed = grown.add(entry)
        assert before[:changed] == grown.rounds[:changed]
        assert 0 <= grown.closed <= len(grown)
        if place % 5 == 0 or place == len(entries):
            assert grown.rounds == rounds_of(entries[:place])
    assert sorted(entry.seq for round_ in grown.rounds for entry in round_.entries) == [one.seq for one in entries]
    for round_ in grown.rounds:
        made = [one for entry in round_.entries if entry.role == "assistant" for one in entry.call_ids]
        answered = [one for entry in round_.entries for one in entry.answered_ids]
        for one in {*made, *round_.unanswered}:
            assert round_.unanswered.count(one) <= made.count(one) <= answered.count(one) + round_.unanswered.count(one)


@given(conversations())
def test_rendering_is_idempotent_and_shows_what_a_human_wrote_word_for_word(steps: list[Any]) -> None:
    messages = flat(steps)
    view = shown(messages)
    spoken = {str(message["content"]) for message in view if message["role"] == "user"}
    for message in messages:
        text = message.get("content")
        plain = isinstance(text, str) and text.strip() and text.isprintable() and not message.get("tool_calls")
        if plain and message["role"] == "user" and not message.get("metadata"):
            assert text in spoken
    assert shown(view) == view


LATE_WORDS: list[list[Message]] = [[call("a")], [user("task"), says("Yes.")], [user([OUTPUT, block("newest")])]]


@given(conversations())
@example(LATE_WORDS)
def test_words_of_a_person_come_after_all_older_messages_of_people_and_agents(turns: list[list[Message]]) -> None:
    entries = {entry.seq: entry for entry in entries_of(flat(turns))}
    seqs: list[int] = []
    for round_ in rounds_of(entries.values()):
        for one in Renderer(approx_token_counter, 1 << 40).render(round_).messages:
            role, is_note = one.message["role"], one.message.get("metadata") == NOTE_METADATA
            if role == "assistant" or (role == "user" and entries[one.seq].human and not is_note):
                seqs.append(one.seq)
    for place, seq in enumerate(seqs):
        if entries[seq].human:
            assert not [later for later in seqs[place + 1 :] if later < seq]
