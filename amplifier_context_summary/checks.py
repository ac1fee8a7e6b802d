"""The checks that an answer passes before it counts.

`patch_in` reads the patch from an answer; `checked` drops from it what the history does not show: quotations that no
person wrote, marks of no message, finished tasks without a result, notes on files that no call named. What is left may
enter the state. Nothing else does.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, cast

from pydantic import ValidationError

from amplifier_context_core.compaction.speech import PASTED, Sentence, read
from amplifier_context_core.messages.parsing import text_of
from amplifier_context_core.messages.usage import text_of_answer
from amplifier_context_core.rendering.quoting import escape_tags, single_line
from amplifier_context_core.transcript.entry import Entry

from .patch import MAX_MARKS, MAX_QUOTE, DoneTask, FileNote, Patch, Rule, Statement
from .sections import patch_in_sections
from .state import State

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length"})
_REFUSED = frozenset({"refusal", "refused", "content_filter", "safety", "prohibited_content", "blocked"})
_REFUSAL = re.compile(
    r"(?:i['\u2019]?m sorry|sorry|i can(?:not|['\u2019]t)|i am unable|i['\u2019]m unable|as an ai)\b", re.I
)
_MOST_CHARS = 400_000  # of an answer; a longer one is not read
_MOST_OBJECTS = 20  # places where a JSON object may begin that are tried


class RejectedAnswer(Exception):
    """An answer that cannot be used.

    Attributes:
        reason: in words that quote nothing of the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider answered.

    Attributes:
        text: all text blocks.
        finish_reason: as the provider named it, in lower case; empty if it named none.
        has_calls: True if it asks for tools.
    """

    text: str
    finish_reason: str = ""
    has_calls: bool = False


def answer_of(response: Any) -> Reply:
    """Return the answer in a kernel's `ChatResponse`; nothing of it is trusted."""
    reason = getattr(response, "finish_reason", None)
    calls = getattr(response, "tool_calls", None)
    return Reply(text_of_answer(response) or "", reason.casefold() if isinstance(reason, str) else "", bool(calls))


def patch_in(answer: Reply, *, plain: bool) -> Patch:
    """Return the patch in an answer.

    Args:
        answer: of the model.
        plain: true to read sections of plain text too, where there is no JSON.

    Raises:
        RejectedAnswer: it is empty, cut off, a refusal, too long, or holds no patch.
    """
    if answer.finish_reason in _CUT:
        raise RejectedAnswer("it was cut off by the output limit; be shorter")
    if answer.finish_reason in _REFUSED:
        raise RejectedAnswer("the model refused")
    if not answer.text.strip():
        raise RejectedAnswer("it asked for tools" if answer.has_calls else "it was empty")
    if len(answer.text) > _MOST_CHARS:
        raise RejectedAnswer("it was far too long")
    for found in _objects(answer.text):
        try:
            patch = Patch.model_validate(found)
        except ValidationError:
            continue
        if not patch.is_empty:
            return patch
    if plain and not _REFUSAL.match(answer.text.strip()):
        patch = patch_in_sections(answer.text)
        if not patch.is_empty:
            return patch
    if _REFUSAL.match(answer.text.strip()):
        raise RejectedAnswer("the model refused")
    raise RejectedAnswer("it held no JSON object of the form that was described")


def is_json(answer: Reply) -> bool:
    """True if an answer holds a patch as JSON."""
    try:
        patch_in(answer, plain=False)
    except RejectedAnswer:
        return False
    return True


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that a text holds, the first outermost first."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if place < 0:
            return
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(found, dict):
                yield cast("dict[str, Any]", found)
        place = text.find("{", end)


def checked(patch: Patch, entries: Mapping[str, Entry], state: State, paths: frozenset[str]) -> Patch:
    """Return a patch without what the history does not show.

    Args:
        patch: as the model gave it.
        entries: those of the range, by mark.
        state: before the range; marks in it were checked before.
        paths: of files that the calls of the range, or of the state, name.

    Raises:
        RejectedAnswer: nothing of it is left.
    """
    known = frozenset(entries) | {mark for item in state.items for mark in item.marks}

    def shown(marks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mark for mark in marks if mark in known)[:MAX_MARKS]

    def statements(given: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [one for one in given if _is_clean(*(v for v in one.model_dump().values() if isinstance(v, str)))]
        return tuple(one.model_copy(update={"marks": shown(one.marks)}) for one in kept)

    goal: tuple[Statement, ...] = statements((patch.goal,)) if patch.goal else ()
    left = Patch(
        goal=goal[0] if goal else None,
        corrections=statements(patch.corrections),
        rules=tuple(_rules(patch, entries)),
        decisions=statements(patch.decisions),
        facts=statements(patch.facts),
        files=tuple(note for note in patch.files if _is_clean(note.note) and note.path in paths),
        open=statements(patch.open),
        done=tuple(_done(patch, entries, state)),
        failures=statements(patch.failures),
        next=patch.next if _is_clean(patch.next) else "",
        hints=tuple(hint for hint in patch.hints if _is_clean(hint)),
        drop=patch.drop,
    )
    if left.is_empty:
        raise RejectedAnswer("nothing of it is shown by the history")
    return left


def _is_clean(*texts: str) -> bool:
    """True if no text holds a tag that could pose as the end or the beginning of a record."""
    return all(escape_tags(text) == text for text in texts)


def _rules(patch: Patch, entries: Mapping[str, Entry]) -> Iterator[Rule]:
    """Yield the rules whose words a person wrote: the whole sentences, with the mark of the message.

    A part of a sentence may demand what the sentence forbids. What a person pasted states no rule.
    """
    people = [(mark, passage) for mark, e in entries.items() if e.human for passage in _written(e)]
    for rule in patch.rules:
        words = single_line(rule.quote).strip("\"'\u201c\u201d ")
        found = [(mark, sentences) for mark, passage in people if (sentences := _sentences_with(words, passage))]
        if found and len(found[-1][1]) <= MAX_QUOTE and _is_clean(found[-1][1]):
            mark, sentences = found[-1]
            yield Rule(quote=sentences, marks=(mark,))


def _written(entry: Entry) -> list[list[Sentence]]:
    """Return the sentences of a message that the person wrote, parted where something is pasted."""
    sentences = read(text_of(entry.message.get("content")), "person")
    passages = groupby(sentences, lambda sentence: sentence.worth > PASTED)
    return [list(passage) for is_own, passage in passages if is_own]


def _sentences_with(words: str, spoken: Sequence[Sentence]) -> str:
    """Return the sentences that words are from, on one line; empty if the words are not among them."""
    first = "".join(sentence.text for sentence in spoken).find(words) if words else -1
    if first < 0:
        return ""
    places = list(accumulate((len(sentence.text) for sentence in spoken), initial=0))
    holding = (
        s.text for s, end, start in zip(spoken, places[1:], places, strict=False) if _meet(start, end, first, words)
    )
    return "".join(holding).strip()


def _meet(start: int, end: int, first: int, words: str) -> bool:
    return start < first + len(words) and first < end


def _done(patch: Patch, entries: Mapping[str, Entry], state: State) -> Iterator[DoneTask]:
    """Yield the finished tasks that a result, or a person, shows."""
    evident = {mark for mark, entry in entries.items() if entry.answered_ids or entry.human}
    open_ids = {item.id for item in state.of("open")}
    for task in patch.done:
        evidence = tuple(mark for mark in task.evidence if mark in evident)[:MAX_MARKS]
        if evidence and _is_clean(task.text) and (task.text or task.id in open_ids):
            yield task.model_copy(update={"evidence": evidence})


__all__ = ["FileNote", "RejectedAnswer", "Reply", "answer_of", "checked", "patch_in"]
