"""Questions about a chat of months: made by rule, the same in every run, of messages that are not all alike."""

from __future__ import annotations

from amplifier_context_core.messages.parsing import text_of
from amplifier_context_testing.lab.chat_questions import KINDS, PEOPLE, long_chats
from amplifier_context_testing.lab.sessions import Session

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
