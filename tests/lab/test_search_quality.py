"""Evidence found by searching: the questions that are made by rule, and how finding is counted."""

from __future__ import annotations

from amplifier_context_testing.lab.search_quality import (
    Found,
    entries_of,
    finders,
    made_questions,
    measure,
    rows,
)
from amplifier_context_testing.lab.sessions import Question, Session

SENTENCES = (
    "The heron watches the harbor from a rotten wooden pier.",
    "Several engines were repaired before the winter regatta started.",
    "Every captain signed the insurance papers without reading them.",
)
MESSAGES = [
    {"role": "user" if at % 2 else "assistant", "content": SENTENCES[at % 3] + f" Note {at}."} for at in range(24)
]
ASKED = Session("asked", "set", MESSAGES[:3], questions=(Question("who watches the harbor?", ("heron",), (), (0,)),))
PLAIN = Session("plain", "set", MESSAGES)


def test_a_made_question_has_words_of_its_evidence_in_another_order_and_form() -> None:
    questions = made_questions(PLAIN)
    assert len(questions) == len(SENTENCES)
    assert questions == made_questions(PLAIN)
    for question in questions:
        (sentence,) = question.evidence
        assert question.indices == tuple(at for at in range(24) if SENTENCES[at % 3] == sentence)
        stems = [word[:4] for word in sentence.lower().split()]
        asked = question.text.split()[3:]
        assert 3 <= len(asked) <= 5
        assert all(word[:4] in stems for word in asked)
        assert question.text not in sentence


def test_evidence_is_counted_among_the_first_results() -> None:
    asked = [Question(str(place), (), (), (place,)) for place in (0, 2, 9, 20)]
    found = measure(asked, lambda query, limit: list(range(limit)))
    assert (found.asked, found.within) == (4, (1, 2, 3))
    assert len(found.seconds) == 4
    assert found + found == Found(8, (2, 4, 6), found.seconds * 2)


def test_every_search_is_asked_the_same_questions() -> None:
    made = list(rows([ASKED, PLAIN]))
    asked = [(name, found) for name, _, found in made if name.partition(",")[0] not in ("I and you", "two names")]
    pooled = [found for name, search, found in made if name == f"two names, {PLAIN.part}" and search == "ours"]
    kinds = [found for name, search, found in made if name.startswith("two names, ") and search == "ours"]
    assert [one.asked for one in pooled] == [sum(one.asked for one in kinds) / 2]
    assert {name for name, _ in asked} == {
        "questions of the data",
        "the same in one long chat",
        f"made questions, {PLAIN.part}",
    }
    assert {search for _, search, _ in made} == set(finders(entries_of(ASKED)))
    assert all(found.asked in (1, 3) for _, found in asked)
