"""Questions as people ask them about a chat of months, made by rule: harder than the questions of the data.

The recordings are cut into sittings of ten messages, and sittings of many conversations alternate in one history, a day
or more apart. So most of a history is other talk, often on the same subject. A question has two or three words of what
it asks for, between words that only ask:

- *own words*: of the message that answers it,
- *reply*: of the message before it as well, as where one speaker asks and the other one answers,
- *sitting*: one word of the answer, the others of messages near it.

Some words are in another form that the recordings have too (number, tense, British or American spelling, digits for
numerals), the rarest is often left out, and some questions name the day. The answer may be a person's or the agent's,
and the question says whose it is: "what did I say", or, in a history of two people with names, "what did Nora say".
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from amplifier_context_core.messages.parsing import parse_message, text_of
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Transcript

from .sessions import Question, Session

QuestionKind = Literal["own words", "reply", "sitting"]
KINDS: dict[QuestionKind, float] = {"own words": 0.6, "reply": 0.25, "sitting": 0.15}  # shares of the questions
PEOPLE = {"user": "Nora", "assistant": "Felix"}

_SITTING = 10  # messages
_SHORTEST, _LONGEST = 40, 3_000  # characters of a message that answers a question
_NEAR = 4  # messages on each side, of which a question about a sitting has words
_USUAL = 0.04  # share of the messages; a word that more of them have is not asked for
_LEFT_OUT, _DATED = 0.5, 0.2  # shares of the questions
_CHANGED = 0.25  # share of the words
_BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)
_WORD = re.compile(r"(?<![\w./-])(?:[A-Za-z][a-z]{2,}|\d{1,2})(?![\w/-]|\.\w)")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ASKING = {
    "own": (
        "What did {speaker} say about the {words}?",
        "When did {speaker} talk about {words}?",
        "Do you remember what {speaker} mentioned about {words} some time ago?",
        "Which {words} was it that {speaker} had?",
        "I was thinking back to our earlier conversation: how was it with {words}, as {speaker} described it?",
        "Can you remind me of the {words} that {speaker} wanted?",
    ),
    "heard": (
        "What did {speaker} tell {other} about the {words}?",
        "Which {words} did {speaker} recommend to {other}?",
        "What was the thing with {words} that {speaker} suggested last time?",
        "Can you remind me how {speaker} explained {words}?",
        "Where did {speaker} mention {words} to {other}?",
    ),
}
# Irregular forms, spellings and numerals of everyday English: any two of a group may replace each other.
_GROUPS = """
buy bought, bring brought, think thought, teach taught, catch caught, go went gone, take took taken, see saw seen,
give gave given, get got gotten, find found, tell told, say said, make made, know knew known, write wrote written,
drive drove driven, choose chose chosen, break broke broken, speak spoke spoken, forget forgot forgotten, fly flew
flown, grow grew grown, draw drew drawn, eat ate eaten, fall fell fallen, feel felt, keep kept, leave left, lose lost,
meet met, pay paid, run ran, sell sold, send sent, sit sat, sleep slept, spend spent, stand stood, swim swam swum,
understand understood, wear wore worn, win won, build built, hear heard, hold held, lead led, begin began begun, sing
sang sung, drink drank drunk, child children, person people, man men, woman women, foot feet, tooth teeth, mouse mice,
life lives, wife wives, knife knives, color colour, favorite favourite, center centre, theater theatre, traveling
travelling, canceled cancelled, behavior behaviour, flavor flavour, organize organise, realize realise, apologize
apologise, gray grey, program programme, license licence, one 1, two 2, three 3, four 4, five 5, six 6, seven 7, eight
8, nine 9, ten 10, eleven 11, twelve 12, twenty 20, thirty 30
"""
_IRREGULAR = {
    word: [other for other in group.split() if other != word] for group in _GROUPS.split(",") for word in group.split()
}


@dataclass(frozen=True, slots=True)
class Chat:
    """A long history with its questions by kind; `name` says what its speakers are called."""

    name: str
    entries: list[Entry]
    questions: dict[QuestionKind, list[Question]]


def long_chats(sessions: Sequence[Session], number: int = 500) -> Iterator[Chat]:
    """Yield the history of some sessions, without names and with names, with at most `number` questions."""
    rng = random.Random("chat questions")
    sittings = list(_alternating([list(_spoken(session)) for session in sessions], rng))
    if not sittings:
        return
    for name in ("I and you", "two names"):
        transcript = Transcript(name)
        day = _BEGIN
        places: list[tuple[int, datetime]] = []
        turns: list[tuple[str, str]] = []
        for at, sitting in enumerate(sittings):
            for minute, (role, text) in enumerate(sitting):
                spoken = f"{PEOPLE[role]}: {text}" if name == "two names" else text
                message, info = parse_message({"role": role, "content": spoken})
                created = (day + timedelta(minutes=minute)).isoformat(timespec="milliseconds")
                transcript.append(transcript.draft(message, info, 0, created=created))
                places.append((at, day))
                turns.append((role, text))
            day += timedelta(days=rng.randint(1, 3))
        asking = _Asking(turns, places, name == "two names", random.Random("chat questions, asked"))
        yield Chat(
            name,
            list(transcript.snapshot()),
            {kind: asking.questions(kind, round(share * number)) for kind, share in KINDS.items()},
        )


def _spoken(session: Session) -> Iterator[tuple[str, str]]:
    for message in session.messages:
        text, role = text_of(message.get("content")), message.get("role")
        if isinstance(role, str) and role in PEOPLE and text.strip():
            yield role, text


def _alternating(conversations: list[list[tuple[str, str]]], rng: random.Random) -> Iterator[list[tuple[str, str]]]:
    """Yield sittings of the conversations: those of one conversation in order, others between them."""
    left = [
        [turns[at : at + _SITTING] for at in range(0, len(turns), _SITTING)]
        for turns in conversations
        if len(turns) > 3
    ]
    while left:
        one = rng.choice(left)
        yield one.pop(0)
        if not one:
            left.remove(one)


class _Asking:
    """Makes questions of a history: role and text, place of each message."""

    def __init__(
        self, turns: list[tuple[str, str]], places: list[tuple[int, datetime]], named: bool, rng: random.Random
    ) -> None:
        self._turns, self._places, self._named, self._rng = turns, places, named, rng
        self._words = [dict.fromkeys(_words(text)) for _, text in turns]
        self._spread = Counter(word for words in self._words for word in words)

    def questions(self, kind: QuestionKind, number: int) -> list[Question]:
        """Return at most `number` questions of a kind."""
        order = list(range(1, len(self._turns)))
        self._rng.shuffle(order)
        made = (self._question(kind, at) for at in order)
        return list(islice(filter(None, made), number))

    def _question(self, kind: QuestionKind, at: int) -> Question | None:
        role, text = self._turns[at]
        near = [place for place in range(at - _NEAR, at + _NEAR + 1) if self._together(at, place) and place != at]
        if not _SHORTEST <= len(text) <= _LONGEST or not self._together(at, at - 1):
            return None
        own = self._usable(at)
        if self._rng.random() < _LEFT_OUT:
            own = own[1:]
        if kind == "own words":
            words = self._rng.sample(own[:6], self._rng.randint(2, 3)) if len(own) > 3 else []
        elif kind == "reply":
            words = [*own[:1], *self._usable(at - 1, own)[1:3]]
        else:
            others = sorted({word for place in near for word in self._usable(place, own)[:3]})
            words = [*own[:1], *self._rng.sample(others, min(2, len(others)))]
        if len(words) < 2 or not own:
            return None
        words = list(dict.fromkeys(map(self._changed, words)))
        self._rng.shuffle(words)
        me = PEOPLE["user"] if self._named else "I"
        you = PEOPLE["assistant"] if self._named else "you"
        speaker, other = (me, you) if role == "user" else (you, me if self._named else "me")
        frame = self._rng.choice(_ASKING["own" if role == "user" else "heard"])
        asked = frame.format(speaker=speaker, other=other, words=" ".join(words))
        if self._rng.random() < _DATED:
            asked = f"On {self._places[at][1]:%B} {self._places[at][1].day}: {asked}"
        indices = tuple(place for place, (_, same) in enumerate(self._turns) if same == text)
        return Question(asked, indices)

    def _together(self, at: int, other: int) -> bool:
        return 0 <= other < len(self._turns) and self._places[at][0] == self._places[other][0]

    def _usable(self, at: int, besides: Sequence[str] = ()) -> list[str]:
        """Return the words of a message that a question may have, the rarest first."""
        most = max(_USUAL * len(self._turns), 5)
        words = [word for word in self._words[at] if self._spread[word] <= most and word not in besides]
        return sorted(words, key=lambda word: (self._spread[word], word))[:8]

    def _changed(self, word: str) -> str:
        if self._rng.random() >= _CHANGED:
            return word
        others = [one for one in (*_IRREGULAR.get(word, ()), *_regular(word)) if self._spread[one]]
        return self._rng.choice(others) if others else word


def _regular(word: str) -> Iterator[str]:
    """Yield what may be other forms of a word by its ending."""
    if word.isdigit():
        return
    yield from (word + ending for ending in ("s", "es", "d", "ed", "ing", "er", "ly", "ment"))
    for ending in ("ies", "es", "s", "ing", "ed", "er", "ation", "e"):
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith("ss"):
            yield from (word[: -len(ending)] + other for other in ("", "e", "y", "s", "ed", "ing", "ation"))


def _words(text: str) -> Iterator[str]:
    return (found.group().lower() for found in _WORD.finditer(_CODE.sub(" ", text)))
