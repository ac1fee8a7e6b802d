"""How well a search finds evidence, and how fast, beside SQLite's own full-text ranking.

python -m lab.search_quality DATA...

Some recordings have questions. For the others, questions are made by rule from a sentence that a person or the agent
wrote: three to five of its rarer words, without the rarest, in another order and mostly in another form, between words
that only ask. Evidence is every message that holds the sentence. Further questions are a part of a rare identifier,
cut anywhere. The hardest are those of `chat_questions`, about a chat of months in English.
"""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import click

from amplifier_context_core.messages.parsing import parse_message, text_of
from amplifier_context_core.stores.word_index import WordIndex
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.search import searchable_text
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_testing.checks.texts import identifiers

from .chat_questions import long_chats
from .sessions import Question, Session, read_sessions

FIRST = (1, 3, 10)
PER_SESSION = 40  # questions made of one session
_ASCII = 0.9  # share of the characters
MADE_OF = 20  # messages that such a session has at least
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{3,}")
_ASKING = ("what", "which", "when", "where", "how", "did", "was", "that", "about", "again", "we", "you", "tell", "me")
_FORMS = (("ies", ("y",)), ("ing", ("ed", "s", "")), ("ed", ("ing", "s", "")), ("s", ("",)))

Find = Callable[[str, int], list[int]]


@dataclass(frozen=True, slots=True)
class Found:
    """Questions, how many had evidence among the first 1, 3 and 10 results, and the seconds of each search."""

    asked: int
    within: tuple[int, ...]
    seconds: tuple[float, ...] = ()

    def __add__(self, other: Found) -> Found:
        within = tuple(a + b for a, b in zip(self.within, other.within, strict=True))
        return Found(self.asked + other.asked, within, self.seconds + other.seconds)


def made_questions(session: Session, number: int = PER_SESSION) -> tuple[Question, ...]:
    """Return questions made by rule of a session's sentences, the same in every run."""
    rng = random.Random(f"search {session.id}")
    texts = [text_of(message.get("content")) for message in session.messages]
    spread = Counter(word for text in texts for word in {word.lower() for word in _WORD.findall(text)})
    sentences = [
        sentence
        for message, text in zip(session.messages, texts, strict=True)
        if message.get("role") in ("user", "assistant")
        for sentence in _SENTENCE.split(text)
        if 40 <= len(sentence) <= 300
    ]
    rng.shuffle(sentences)
    made: list[Question] = []
    for sentence in dict.fromkeys(sentences):
        words = sorted({word.lower() for word in _WORD.findall(sentence)}, key=lambda word: (spread[word], word))
        if len(words) >= 5 and len(made) < number:
            asked = [_other_form(word, rng) for word in words[1 : 1 + rng.randint(3, 5)]]
            rng.shuffle(asked)
            indices = tuple(at for at, text in enumerate(texts) if sentence in text)
            made.append(Question(" ".join(rng.sample(_ASKING, 3) + asked), indices))
    return tuple(made)


def part_questions(session: Session, number: int = PER_SESSION // 2) -> tuple[Question, ...]:
    """Return questions for parts of a session's rare identifiers, cut anywhere, the same in every run."""
    rng = random.Random(f"parts {session.id}")
    texts = [text_of(message.get("content")) for message in session.messages]
    spread = Counter(name for text in texts for name in identifiers(text))
    names = sorted(name for name, count in spread.items() if 8 <= len(name) <= 60 and count <= 3)
    rng.shuffle(names)
    made: list[Question] = []
    for name in names[:number]:
        start = rng.randint(1, 3)
        part = name[start : start + rng.randint(5, len(name) - start)]
        indices = tuple(at for at, text in enumerate(texts) if name in text)
        made.append(Question(f"where was {part}", indices))
    return tuple(made)


def full_text(texts: Iterable[str]) -> Find:
    """Return the search to compare with: FTS5 with porter stems by bm25, any of the words."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE plain USING fts5(text, tokenize = 'porter unicode61')")
    rows = ((key, text.encode("utf-8", "replace").decode()) for key, text in enumerate(texts))
    db.executemany("INSERT INTO plain(rowid, text) VALUES (?, ?)", rows)
    select = "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY bm25(plain), rowid LIMIT ?"

    def find(query: str, limit: int) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query.lower())))
        return [key for (key,) in db.execute(select, (words, limit))] if words else []

    return find


def ours(entries: Sequence[Entry]) -> Find:
    index, places = WordIndex(), {entry.seq: place for place, entry in enumerate(entries)}
    index.search(entries, "filled", 1)
    return lambda query, limit: [places[entry.seq] for entry in index.search(entries, query, limit)]


def measure(questions: Iterable[Question], find: Find) -> Found:
    total = Found(0, (0,) * len(FIRST))
    for question in questions:
        begun = time.perf_counter()
        results = find(question.text, max(FIRST))
        taken = time.perf_counter() - begun
        hits = tuple(int(bool(set(results[:first]) & set(question.indices))) for first in FIRST)
        total += Found(1, hits, (taken,))
    return total


def finders(entries: Sequence[Entry]) -> dict[str, Find]:
    return {"FTS5, bm25, porter": full_text(searchable_text(entry) for entry in entries), "ours": ours(entries)}


def entries_of(session: Session) -> list[Entry]:
    transcript = Transcript(session.id)
    for raw in session.messages:
        message, info = parse_message(raw)
        transcript.append(transcript.draft(message, info, 0, created="2026-01-01T00:00:00.000+00:00"))
    return list(transcript.snapshot())


def long_chat(sessions: Sequence[Session]) -> list[Session]:
    messages = [message for session in sessions for message in session.messages]
    questions: list[Question] = []
    before = 0
    for session in sessions:
        moved = (replace(one, indices=tuple(at + before for at in one.indices)) for one in session.questions)
        questions.extend(moved)
        before += len(session.messages)
    return [Session("long chat", "long chat", messages, questions=tuple(questions))] if questions else []


def rows(sessions: Sequence[Session]) -> Iterable[tuple[str, str, Found]]:
    asked = [session for session in sessions if session.questions]
    others = [session for session in sessions if not session.questions and len(session.messages) >= MADE_OF]
    made = [replace(session, questions=made_questions(session)) for session in others]
    halves = {f"made questions, {part}": [one for one in made if one.part == part] for part in ("choose", "report")}
    for name, some in {
        "questions of the data": asked,
        "the same in one long chat": long_chat(sessions),
        **halves,
        "parts of identifiers": [replace(session, questions=part_questions(session)) for session in others],
    }.items():
        total: dict[str, Found] = {}
        for session in some:
            for search, find in finders(entries_of(session)).items():
                found = measure(session.questions, find)
                total[search] = total[search] + found if search in total else found
        for search, found in total.items():
            if found.asked:  # short sessions have no parts of identifiers to ask for
                yield name, search, found
    for part in ("choose", "report"):
        for chat in long_chats([session for session in sessions if session.part == part and is_english(session)]):
            for search, find in finders(chat.entries).items():
                by_kind = {kind: measure(questions, find) for kind, questions in chat.questions.items()}
                for kind, found in by_kind.items():
                    yield f"{chat.name}, {kind}, {part}", search, found
                yield f"{chat.name}, {part}", search, sum(by_kind.values(), Found(0, (0,) * len(FIRST)))


def is_english(session: Session) -> bool:
    """True if nearly all letters of a session's messages are ASCII."""
    text = "".join(text_of(message.get("content")) for message in session.messages)
    return sum(map(str.isascii, text)) > _ASCII * len(text)


def _other_form(word: str, rng: random.Random) -> str:
    if rng.random() < 0.4:
        return word
    for ending, others in _FORMS:
        if word.endswith(ending) and len(word) > len(ending) + 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rng.choice(others)
    return word + "s"


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(exists=True))
def main(data: tuple[str, ...]) -> None:
    """Print the table for recordings: files or folders."""
    click.echo("| questions | search | asked | any@1 | any@3 | any@10 | p50 ms | p99 ms |")
    click.echo("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, search, found in rows(read_sessions(data, skipped=[])):
        shares = " | ".join(f"{hits / found.asked:.3f}" for hits in found.within)
        times = sorted(found.seconds)
        at = " | ".join(f"{1000 * times[int(len(times) * share)]:.1f}" for share in (0.5, 0.99))
        click.echo(f"| {name} | {search} | {found.asked} | {shares} | {at} |")


if __name__ == "__main__":
    main()
