"""A writer of summaries that only extracts: sentences of the text so far and of the range, chosen by rules.

It replaces a model where none is at hand: in the services on loopback, in the lab, in the demo. The same range
gives the same text. It understands nothing, so it says what a model's text costs and how it travels, and nothing of
how good a model's summary is.

A request is read back from its text, in the form of docs/summary.md. Nothing is imported from the package that asks, so
that a change of the form is seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from .checks.message_shapes import text_of
from .checks.texts import identifiers, is_rule
from .replay.answer_policies import Answer, Policy

LONGEST = 300  # characters of an extracted sentence
LINES = 12  # under one heading at most

_END = re.compile(r"(?<=[.!?])\s+|\n+")
_DECIDED = re.compile(r"\b(?:decided|chose|chosen|instead of|rather than|because|will use|going with)\b", re.IGNORECASE)
_FOUND = re.compile(
    r"\b(?:found|shows?|contains?|returns?|is in|are in|caused|fails?|passed|has|have)\b", re.IGNORECASE
)
_FAILED = re.compile(r"^.*(?:\b(?:Error|Exception|FAILED|failed|fatal|No such file)\b).*$", re.MULTILINE)
_AHEAD = re.compile(r"^(?:let me|i['’]ll|i will|next,?|now,? (?:i|let))\b", re.IGNORECASE)

Speaker = Literal["person", "agent", "call", "result", "program"]

_FORMER = re.compile(r"<context_record>\n\[the summary so far[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HISTORY = re.compile(r"<context_record>\n\[history (m\d+) to (m\d+)[^\n]*\]\n(.*?)\n</context_record>", re.DOTALL)
_HEAD = re.compile(r"(m\d+)(?:\.\d+)? (person|agent|call|result|program)(?: ([^:]*))?: ?(.*)")


@dataclass(frozen=True, slots=True)
class Quoted:
    """One message of the range.

    Attributes:
        mark: of the message.
        speaker: of it.
        name: of the tool, or of a result the call that it answers; empty for speech.
        text: its text, without the indentation of the quotation.
    """

    mark: str
    speaker: Speaker
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a summary.

    Attributes:
        former: lines of the summary so far, by heading.
        first, last: marks of the range.
        history: the range.
    """

    former: dict[str, list[str]]
    first: str
    last: str
    history: tuple[Quoted, ...]

    def of(self, speaker: Speaker) -> Iterator[Quoted]:
        return (one for one in self.history if one.speaker == speaker)


def asked(request: Any) -> Asked | None:
    """Return what a `ChatRequest` asks to summarise; None if it asks for something else."""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        content: Any = message.model_dump(exclude_unset=True)["content"]
        text = text_of(content)
        former, history = _FORMER.search(text), _HISTORY.search(text)
        if former is not None and history is not None:
            return Asked(_sections(_plain(former[1])), history[1], history[2], tuple(_quoted(history[3])))
    return None


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("- "):
            found.setdefault(heading, []).append(line.removeprefix("- "))
    return found


def _quoted(text: str) -> Iterator[Quoted]:
    mark, speaker, name = "", "program", ""
    lines: list[str] = []
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is None:
            lines.append(line.removeprefix("  "))
            continue
        if mark:
            yield Quoted(mark, cast(Speaker, speaker), name, _plain("\n".join(lines)))
        mark, speaker, name, lines = head[1], head[2], head[3] or "", [head[4]]
    if mark:
        yield Quoted(mark, cast(Speaker, speaker), name, _plain("\n".join(lines)))


def _plain(text: str) -> str:
    """Return a text with its tags as they were before they were escaped."""
    return text.replace("&lt;", "<")


def with_summaries(policy: Policy) -> Policy:
    """Return a policy that answers requests for summaries by extraction, and leaves all others to another policy."""

    def answer(request: Any) -> Any:
        question = asked(request)
        return policy(request) if question is None else Answer.of(extracted(question))

    return answer


def extracted(question: Asked) -> str:
    """Return the text after a range: of each heading the lines so far, and those of the range, the newest."""
    people, agent, results = (list(question.of(speaker)) for speaker in ("person", "agent", "result"))
    found = {
        "Person": [f'"{sentence}" ({one.mark})' for one, sentence in _sentences(people) if is_rule(sentence)],
        "Findings": [
            *(f"Decided: {text} ({one.mark})" for one, text in _sentences(agent) if _DECIDED.search(text)),
            *(
                f"Failed: {failed[0].strip()[:LONGEST]} ({one.mark})"
                for one in results
                if (failed := _FAILED.search(one.text)) is not None
            ),
        ],
        "Values": [
            f"{text} ({one.mark})"
            for one, text in _sentences(agent)
            if _FOUND.search(text) and identifiers(text) and not _AHEAD.match(text)
        ],
    }
    goal = [f"Wants: {_sentence(people[0].text)} ({people[0].mark})"] if people and not question.former else []
    found["Person"] = goal + found["Person"]
    lines = {head: [*question.former.get(head, ()), *new][-LINES:] for head, new in found.items()}
    lines["Person"] = [*question.former.get("Person", ()), *found["Person"]][:LINES]
    done = [line for line in question.former.get("Work", ()) if line.startswith("Done")]
    tasks = _tasks(question, [line for line in question.former.get("Work", ()) if line.startswith("Open")])
    ahead = next((text for _, text in _sentences(reversed(agent)) if _AHEAD.match(text)), "")
    lines["Work"] = [*done, *tasks][-LINES:] + ([f"Next: {ahead}"] if ahead else [])
    parts = (
        "\n".join([f"## {head}", *(f"- {line}" for line in dict.fromkeys(of))]) for head, of in lines.items() if of
    )
    return "\n\n".join(parts)


def _tasks(question: Asked, opened: list[str]) -> list[str]:
    """Return the tasks after the range.

    What a person asks is a task. It is done when the agent spoke after its last result and called no more tools before
    the person spoke again; that result is the evidence.
    """
    tasks: list[str] = []
    task = opened[-1].removeprefix("Open: ").rsplit(" (", 1)[0] if opened else ""
    mark, result = "", ""
    answered = False
    for one in question.history:
        match one.speaker:
            case "person":
                if task:
                    tasks.append(f"Done: {task} ({result})" if answered and result else f"Open: {task}")
                task, mark, result, answered = _sentence(one.text), one.mark, "", False
            case "call":
                answered = False
            case "result":
                result = one.mark
            case "agent":
                answered = True
            case "program":
                pass
    return [*tasks, f"Open: {task} ({mark})" if mark else f"Open: {task}"] if task else tasks


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
