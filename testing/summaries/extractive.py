"""A writer of summaries that only extracts: a patch of sentences and names of the range, chosen by rules.

It replaces a model where none is at hand: in the services on loopback, in the lab, in the demo. The same range
gives the same patch. It understands nothing, so it says what a model's patch costs and how it travels, and nothing of
how good a model's summary is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..checks.texts import identifiers, is_rule
from ..replay.answer_policies import Answer, Policy
from .asked import Asked, Quoted, asked

Json = dict[str, Any]

LONGEST = 300  # characters of an extracted sentence
FACTS, FAILURES, RULES, DECISIONS, HINTS = 8, 4, 8, 6, 8  # items of one patch at most

_END = re.compile(r"(?<=[.!?])\s+|\n+")
_DECIDED = re.compile(r"\b(?:decided|chose|chosen|instead of|rather than|because|will use|going with)\b", re.IGNORECASE)
_FOUND = re.compile(
    r"\b(?:found|shows?|contains?|returns?|is in|are in|caused|fails?|passed|has|have)\b", re.IGNORECASE
)
_FAILED = re.compile(r"^.*(?:\b(?:Error|Exception|FAILED|failed|fatal|No such file)\b).*$", re.MULTILINE)
_AHEAD = re.compile(r"^(?:let me|i['’]ll|i will|next,?|now,? (?:i|let))\b", re.IGNORECASE)


def extractive_answer(request: Any) -> Answer | None:
    """Return the patch that a request for a summary gets, as an answer; None for any other request."""
    question = asked(request)
    return None if question is None else Answer.of(json.dumps(extracted(question), ensure_ascii=False))


def with_summaries(policy: Policy) -> Policy:
    """Return a policy that answers requests for summaries by extraction, and leaves all others to another policy."""

    def answer(request: Any) -> Any:
        found = extractive_answer(request)
        return policy(request) if found is None else found

    return answer


def extracted(question: Asked) -> Json:
    """Return the patch of a range."""
    people, agent, results = (list(question.of(speaker)) for speaker in ("person", "agent", "result"))
    patch: Json = {
        "goal": _goal(question, people),
        "rules": [
            {"quote": sentence, "marks": [one.mark]} for one, sentence in _sentences(people) if is_rule(sentence)
        ][:RULES],
        "decisions": [
            {"text": sentence, "reason": _reason(sentence), "marks": [one.mark]}
            for one, sentence in _sentences(agent)
            if _DECIDED.search(sentence)
        ][-DECISIONS:],
        "facts": [
            {"text": sentence, "marks": [one.mark]}
            for one, sentence in _sentences(agent)
            if _FOUND.search(sentence) and identifiers(sentence) and not _AHEAD.match(sentence)
        ][-FACTS:],
        "failures": [
            {"text": failed[0].strip()[:LONGEST], "marks": [one.mark]}
            for one in results
            if (failed := _FAILED.search(one.text)) is not None
        ][-FAILURES:],
        "next": next((sentence for _, sentence in _sentences(reversed(agent)) if _AHEAD.match(sentence)), ""),
        "hints": _hints(question.history),
    }
    patch["open"], patch["done"] = _tasks(question)
    return {key: value for key, value in patch.items() if value}


def _goal(question: Asked, people: list[Quoted]) -> Json | None:
    """Return the first words of a person, if the state has no goal yet."""
    if question.items("goal") or not people:
        return None
    return {"text": _sentence(people[0].text), "marks": [people[0].mark]}


def _tasks(question: Asked) -> tuple[list[Json], list[Json]]:
    """Return the tasks that are open after the range, and the ones that are done.

    What a person asks is a task. It is done when the agent spoke after its last result and called no more tools before
    the person spoke again; that result is the evidence.
    """
    opened: list[Json] = []
    done: list[Json] = []
    task: Json | None = next(({"id": one["id"], "text": one["text"]} for one in reversed(question.items("open"))), None)
    result = ""
    answered = False
    for one in question.history:
        match one.speaker:
            case "person":
                if task is not None:
                    (done if answered and result else opened).append(_ended(task, result if answered else ""))
                task, result, answered = {"text": _sentence(one.text), "marks": [one.mark]}, "", False
            case "call":
                answered = False
            case "result":
                result = one.mark
            case "agent":
                answered = True
            case "note":
                pass
    if task is not None and "marks" in task:
        opened.append(task)
    return opened, done


def _ended(task: Json, evidence: str) -> Json:
    if not evidence:
        return task
    return {**{key: value for key, value in task.items() if key != "marks"}, "evidence": [evidence]}


def _sentences(messages: Iterable[Quoted]) -> Iterator[tuple[Quoted, str]]:
    """Yield the sentences of messages that are neither short nor long."""
    for one in messages:
        for part in _END.split(one.text):
            sentence = part.strip(" -*#>\t")
            if 15 <= len(sentence) <= LONGEST:
                yield one, sentence


def _sentence(text: str) -> str:
    """Return the first sentence of a text, or its beginning."""
    first = next((part.strip() for part in _END.split(text) if part.strip()), text.strip())
    return first[:LONGEST]


def _reason(sentence: str) -> str:
    return sentence.partition(" because ")[2].strip(" .")


def _hints(history: Iterable[Quoted]) -> list[str]:
    """Return the names that most messages of the range hold."""
    held = Counter(name for one in history for name in sorted(identifiers(one.text)) if len(name) <= 60)
    return [name for name, _ in held.most_common(HINTS)]
