"""Questions about a chat of months: made by rule, the same in every run, of messages that are not all alike."""

from __future__ import annotations

from amplifier_context_core.messages.parsing import text_of
from amplifier_context_testing.lab.chat_questions import KINDS, PEOPLE, long_chats
from amplifier_context_testing.lab.sessions import Question, Session

_SYLLABLES = ("ba", "ko", "ri", "tu", "ne")


def _word(number: int) -> str:
    return "".join(_SYLLABLES[number // 5**place % 5] for place in range(4))


def _words(number: int, at: int) -> list[str]:
    """Return the words of a message: each is in two messages next to each other."""
    return [_word(100 * number + 3 * at + offset) for offset in range(6)]


def _session(number: int) -> Session:
    contents = (f"Then came {' '.join(_words(number, at))} to the river." for at in range(24))
    messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(contents)]
    return Session(f"session {number}", "set", messages)


SESSIONS = [_session(number) for number in range(6)]


def test_each_history_has_all_messages_and_questions_of_each_kind() -> None:
    plain, named = long_chats(SESSIONS, 40)
    for chat in (plain, named):
        assert len(chat.entries) == 6 * 24
        assert set(chat.questions) == set(KINDS)
        for questions in chat.questions.values():
            assert questions
            for question in questions:
                (evidence,) = question.evidence
                texts = [text_of(chat.entries[at].message["content"]) for at in question.indices]
                assert texts
                assert all(text.removeprefix("Nora: ").removeprefix("Felix: ") == evidence for text in texts)
                assert evidence not in question.text
    assert len({entry.created[:10] for entry in plain.entries}) == 18
    assert all(text_of(one.message["content"]).startswith(f"{PEOPLE[one.role]}: ") for one in named.entries)
    assert [one.text for one in plain.questions["reply"]] == [
        one.text for one in next(long_chats(SESSIONS, 40)).questions["reply"]
    ]


def test_the_words_of_a_question_are_in_its_answer_or_beside_it() -> None:
    plain, _ = long_chats(SESSIONS, 40)
    known = {word for number in range(6) for at in range(24) for word in _words(number, at)}

    def asked(question: Question) -> set[str]:
        return known.intersection(question.text.strip("?").replace(",", "").split())

    for question in plain.questions["own words"]:
        assert 2 <= len(asked(question)) <= 3
        assert asked(question) <= set(question.evidence[0].split())
    for question in plain.questions["reply"]:
        (place,) = question.indices
        before = text_of(plain.entries[place - 1].message["content"])
        assert asked(question) <= {*question.evidence[0].split(), *before.split()}
        assert not asked(question) <= set(question.evidence[0].split())


def test_without_sessions_there_is_no_history() -> None:
    assert list(long_chats([])) == []
