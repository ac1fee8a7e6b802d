"""Rules planted into recordings."""

from __future__ import annotations

import pytest

from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.checks.request_checker import check_request
from amplifier_context_testing.lab.planted import plant
from amplifier_context_testing.lab.sentences import is_rule, sentences
from amplifier_context_testing.lab.sessions import Session


def recorded(name: str, rounds: int) -> Session:
    talk = ConversationBuilder().user("Repair src/loader.py.").work(rounds, "loader").say("src/loader.py works.")
    return Session(name, "made", talk.messages, host=frozenset({3}))


SESSIONS = [recorded("long", 30), recorded("short", 10)]


def test_each_rule_is_stated_once_by_a_person_as_a_sentence_of_its_own() -> None:
    for session, rules in plant(SESSIONS, 40):
        texts = [str(message["content"]) for message in session.messages if message["role"] == "user"]
        stated = [sentence for text in texts for sentence in sentences(text) if sentence in rules]
        assert sorted(stated) == sorted(rules)
        assert all(is_rule(rule) for rule in rules)


def test_sessions_have_a_share_by_their_length_and_all_together_so_many() -> None:
    counts = [len(rules) for _, rules in plant(SESSIONS, 40)]
    lengths = [len(session.messages) for session in SESSIONS]
    assert sum(counts) == 40
    assert counts[0] == round(40 * lengths[0] / sum(lengths))


def test_the_recording_itself_is_as_it_was_in_between_and_stays_valid() -> None:
    for session, (planted, rules) in zip(SESSIONS, plant(SESSIONS, 200), strict=True):
        own = [message for message in planted.messages if not rules & {*sentences(str(message["content"]))}]
        assert own == session.messages
        assert planted.messages[0] is session.messages[0]
        assert check_request([{**message, "content": message["content"] or ""} for message in planted.messages]) == []


def test_the_same_seed_plants_the_same() -> None:
    assert plant(SESSIONS, 40) == plant(SESSIONS, 40)
    assert plant(SESSIONS, 40) != plant(SESSIONS, 40, seed="other")


def test_more_rules_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="1,000,000 rules cannot be planted: there are"):
        plant(SESSIONS, 1_000_000)
