"""Condensing: the entries of chapters in less room.

Rules that people stated stay, whatever the room, and all that they wrote themselves as long as it fits. Beyond that it
is shortened after all else: after the agent's sentences, what each call was about, and the names least likely to be
needed again. Where even that finds no room, calls of the oldest rounds are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ..messages.parsing import text_of
from ..messages.tokens import TokenCounter
from . import tuning
from .checkpoint import DigestEntry, Draft, Fact, Segment
from .identifiers import identifiers, names_in, with_parts
from .speech import GAP, OWN, RULE, joined, length, read, select, with_gaps, word_end

_LEAST_SUBJECT = 36  # characters: a mark, a name, and a little of what it was about; beside the file that it wrote
_LEAST_QUOTED = 48  # characters of an outcome that is a short result, or that names a verdict or trouble
_LEAST_SIZE = 16  # characters of one that says first how large the output was
_WHOLE_NAME = 120  # characters: a name at the edge of what is cut stays up to this length
# An outcome that says least: how large the output was, with an excerpt or not.
_SIZE = re.compile(r'[\d,]+ (?:lines|characters)(?:, ".*")?|no output')
_FRAME = 30  # tokens of a chapter beside its entries: the tags, its span, and how many rounds it leaves out
_JOINTS = 5  # characters that join subject, outcome and names


def condense(
    entries: Sequence[DigestEntry], share: float, counter: TokenCounter, least: float = RULE
) -> list[DigestEntry | None]:
    """Return the entries in about `share` (above 0, below 1) of their characters together, None for each left out.

    Sentences and names of all entries are ranked together. People's sentences of at least the worth `least` stay
    whatever the room.
    """
    shares = tuning.TUNING
    size = sum(len(entry.text) for entry in entries)
    lines = _lines(entries)
    facts = [line.fact for line in lines]
    of_calls = sum(map(_cost, facts))
    of_names = sum(len(name) + 1 for fact in facts for name in fact.names)
    spoken = [fact for fact in facts if fact.sentences and fact.speaker == "agent"]
    of_agent = sum(length(fact.sentences) + len(fact.subject) + _JOINTS for fact in spoken)
    needed, own = (sum(_needed_for_people(fact, worth) for fact in facts) for worth in (least, OWN))
    room = max(int(size * share), needed)
    others = of_agent + of_calls + of_names
    people = min(int(room * shares.people), own + int(room * shares.pasted))
    people = max(people, needed, room - others)
    room -= _shorten_speech(lines, "person", people)
    room -= _shorten_speech(lines, "agent", max(int(room * shares.agent), room - of_calls - of_names))
    room -= _shorten_calls(lines, max(int(room * shares.calls), room - of_names), len(entries) - 1)
    _choose_names(lines, room, shares.freshness, len(entries))
    return _entries(entries, lines, counter)


def shorten_agent(entries: Sequence[DigestEntry], room: int, counter: TokenCounter) -> list[DigestEntry]:
    """Return the entries with at most about `room` characters of the agent's speech; facts left empty are dropped."""
    lines = _lines(entries)
    _shorten_speech(lines, "agent", room)
    _pass_on_names(lines)
    return [entry for entry in _entries(entries, lines, counter) if entry is not None]


@dataclass(slots=True)
class _Line:
    """`place` is the index of its entry."""

    place: int
    fact: Fact


def _lines(entries: Sequence[DigestEntry]) -> list[_Line]:
    return [_Line(place, fact) for place, entry in enumerate(entries) for fact in entry.facts]


def _entries(entries: Sequence[DigestEntry], lines: Sequence[_Line], counter: TokenCounter) -> list[DigestEntry | None]:
    """Return None for each entry that has no fact with content."""
    left: list[list[Fact]] = [[] for _ in entries]
    for line in lines:
        if line.fact.sentences or line.fact.names or not line.fact.speaker:
            left[line.place].append(line.fact)
    return [
        entry if tuple(facts) == entry.facts else entry.with_facts(facts, counter) if facts else None
        for entry, facts in zip(entries, left, strict=True)
    ]


def only_people(entries: Sequence[DigestEntry], counter: TokenCounter, least: float = RULE) -> list[DigestEntry]:
    """Keep nothing but people's sentences of at least this worth; entries without any are left out.

    `RULE` is the worth of rules alone, `OWN` of all that people wrote themselves.
    """
    return [
        entry.with_facts(kept, counter)
        for entry in entries
        if (kept := [fact for of_entry in entry.facts if (fact := _of_people(of_entry, least)) is not None])
    ]


def people_tokens(segments: Iterable[Segment], counter: TokenCounter, least: float = RULE) -> int:
    """Return the tokens that people's sentences of at least this worth need: in chapters and in what people wrote.

    What is protected counts for nothing: its sentences stay with it.
    """
    return sum(_tokens_of_people(segment, counter, least) for segment in segments if not segment.protected_because)


def without_oldest(draft: Draft, most: int, gives: Callable[[Segment], bool]) -> Draft:
    """Drop the oldest unprotected segments for which `gives` is true until at most so many tokens are left."""
    tokens = draft.tokens
    kept: list[Segment] = []
    for segment in draft.segments:
        if tokens > most and not segment.protected_because and gives(segment):
            tokens -= segment.tokens
        else:
            kept.append(segment)
    return draft.with_segments(kept)


def _tokens_of_people(segment: Segment, counter: TokenCounter, least: float) -> int:
    if segment.chapter is not None:
        entries = only_people(segment.chapter.entries, counter, least)
        return min(segment.tokens, _FRAME + sum(entry.tokens for entry in entries)) if entries else 0
    if segment.round is None or not segment.is_human:
        return 0
    texts = [text_of(entry.message.get("content")) for entry in segment.round.entries if entry.human]
    kept = [sentence for text in texts for sentence in read(text, "person") if sentence.worth >= least]
    return min(segment.tokens, _FRAME + counter(joined(kept))) if kept else 0


def _of_people(fact: Fact, least: float) -> Fact | None:
    kept = [index for index, sentence in enumerate(fact.sentences) if sentence.worth >= least]
    if not kept or fact.speaker != "person":
        return None
    return replace(fact, sentences=tuple(with_gaps(fact.sentences, kept)), names=(), scores=())


def _needed_for_people(fact: Fact, worth: float) -> int:
    """Return the characters that `select` needs to keep a person's sentences of at least this worth."""
    kept = [sentence for sentence in fact.sentences if fact.speaker == "person" and sentence.worth >= worth]
    return sum(len(sentence.text) + len(GAP.text) for sentence in kept) + len(fact.subject) + _JOINTS if kept else 0


def _shorten_speech(lines: Sequence[_Line], speaker: str, room: int) -> int:
    """Bring the speeches of one kind of speaker into `room` characters, in place; return their characters then."""
    spoken = [line for line in lines if line.fact.sentences and line.fact.speaker == speaker]
    labels = [len(line.fact.subject) + _JOINTS for line in spoken]
    chosen = select([line.fact.sentences for line in spoken], room, labels)
    taken = 0
    for line, label, kept in zip(spoken, labels, chosen, strict=True):
        fact = line.fact
        if kept != fact.sentences:
            rest = set(identifiers(joined(kept)))
            lost = [name for name in identifiers(joined(fact.sentences)) if name not in rest]
            most = int((length(fact.sentences) - length(kept)) * tuning.TUNING.names_of_speech)
            line.fact = _with_names(replace(fact, sentences=kept), _first(lost, most))
        taken += length(kept) + label if kept else 0
    return taken


def _first(names: Sequence[str], room: int) -> list[str]:
    ends = accumulate(len(name) + 1 for name in names)
    return [name for name, end in zip(names, ends, strict=True) if end <= room]


def _with_names(fact: Fact, names: Sequence[str]) -> Fact:
    more = dict.fromkeys(names, tuning.TUNING.cut_name)
    return _named(fact, [*more.items(), *((name, score) for name, score in fact.scored_names if name not in more)])


def _named(fact: Fact, scored: Sequence[tuple[str, float]]) -> Fact:
    return replace(fact, names=tuple(name for name, _ in scored), scores=tuple(score for _, score in scored))


def _shorten_calls(lines: list[_Line], room: int, last: int) -> int:
    """Bring calls into their room (characters), the older the shorter, in place; return the characters they take.

    Where not even the beginnings of all calls find room, nothing but the tool and names stay: of calls that say no more
    than how large their output was, and then of the others, the oldest first. Calls of the `last` entry stay.
    """
    share = room / max(sum(_cost(line.fact) for line in lines), 1)
    for line in lines if share < 1 else ():
        if not (line.fact.sentences or _is_bare(line.fact)):
            line.fact = _shortened(_without_size(line.fact), share * (0.6 + 0.8 * line.place / max(last, 1)))
    _pass_on_names(lines)
    left = sum(_cost(line.fact) for line in lines)
    kept = dict(enumerate(lines))
    for number in sorted(kept, key=lambda number: (bool(lines[number].fact.outcome), number)):
        line = lines[number]
        if left <= room:
            break
        if line.place == last or line.fact.sentences:
            continue
        left -= _cost(line.fact)
        line.fact = _bare(line.fact)
        if not line.fact.names:
            del kept[number]
    lines[:] = kept.values()
    return left


def _bare(fact: Fact) -> Fact:
    """Names of its arguments and outcome come first."""
    mark, _, rest = fact.subject.partition(" ")
    tool, _, rest = rest.partition(" ")
    lost = identifiers(f"{fact.changed} {rest} {fact.outcome}")
    return _with_names(replace(fact, subject=f"{mark} {tool}".rstrip(" :"), outcome=""), lost)


def _with_changed(fact: Fact) -> Fact:
    """Put the file that a bare call changed beside its tool."""
    others = [scored for scored in fact.scored_names if scored[0] != fact.changed]
    return replace(_named(fact, others), subject=f"{fact.subject} {fact.changed}")


def _is_bare(fact: Fact) -> bool:
    """True for a call of which no more than its mark, its tool and names are there."""
    tool = fact.subject.removesuffix(f" {fact.changed}")
    return bool(fact.names or fact.changed) and not fact.sentences and not fact.outcome and tool.count(" ") <= 1


def _pass_on_names(lines: list[_Line]) -> None:
    """Take out speech that lost its sentences, in place; the next fact of its entry takes over its names."""
    kept: list[_Line] = []
    for line in reversed(lines):
        fact, after = line.fact, kept[-1] if kept else None
        if after and after.place == line.place and fact.speaker and not fact.sentences:
            more = [scored for scored in fact.scored_names if scored[0] not in after.fact.names]
            after.fact = _named(after.fact, [*more, *after.fact.scored_names])
        else:
            kept.append(line)
    lines[:] = kept[::-1]


def _cost(fact: Fact) -> int:
    """Return characters of a call without its names, and of what joins them; 0 for a bare call, whose names pay."""
    return 0 if fact.sentences or _is_bare(fact) else len(fact.subject) + len(fact.outcome) + _JOINTS


def _without_size(fact: Fact) -> Fact:
    return replace(fact, outcome="") if _SIZE.fullmatch(fact.outcome) else fact


def _shortened(fact: Fact, share: float) -> Fact:
    """Names that are cut off become names of the fact."""
    room = int((len(fact.subject) + len(fact.outcome)) * share)
    is_quoted = fact.outcome.startswith('"') or ': "' in fact.outcome
    outcome_room = max(_LEAST_QUOTED if is_quoted else _LEAST_SIZE, room // 3)
    subject_room = max(_LEAST_SUBJECT + len(fact.changed), room - min(len(fact.outcome), outcome_room))
    subject, lost = _cut(fact.subject, subject_room, whole=_WHOLE_NAME)
    outcome, lost_too = _cut(fact.outcome, outcome_room, whole=_WHOLE_NAME)
    return _with_names(replace(fact, subject=subject, outcome=outcome), identifiers(f"{lost} {lost_too}"))


def _cut(text: str, room: int, whole: int = 0) -> tuple[str, str]:
    """Return the beginning of a text up to a word's end, and what was cut off.

    A name at the edge stays if it has at most `whole` characters: it would be kept beside the text in any case.
    """
    if len(text) <= room:
        return text, ""
    end = word_end(text, room - 2, reach=room)
    after = text.find(" ", end + 1)
    after = after if after >= 0 else len(text)
    if after - end <= whole and identifiers(text[end:after]):
        end = after
    if end == len(text):
        return text, ""
    lost = end if text[end] == " " else max(text.rfind(" ", 0, end), text.rfind('"', 0, end)) + 1  # no part of a name
    return f"{text[:end].rstrip(' …')} …", text[lost:]


def _choose_names(lines: list[_Line], room: int, freshness: float, entries: int) -> None:
    """Keep the names likeliest to be needed again in `room` characters, each once, in place.

    The first name of a bare call pays for its mark, its tool and the file that it changed; a bare call without a name
    is left out.
    """
    for line in lines:
        line.fact = _bare(line.fact) if _is_bare(line.fact) else line.fact
    ranked = sorted(
        (
            (score + freshness * line.place / entries, number, index)
            for number, line in enumerate(lines)
            for index, (_, score) in enumerate(line.fact.scored_names)
        ),
        reverse=True,
    )
    kept: set[tuple[int, int]] = set()
    seen = {name for line in lines for name in names_in(line.fact.statement)}
    labelled: set[int] = set()
    for _, number, index in ranked:
        fact = lines[number].fact
        name = fact.names[index]
        if name in seen:
            continue
        cost = len(name) + 1 if name != fact.changed else 0
        if _is_bare(fact) and number not in labelled:
            cost += len(fact.subject) + len(fact.changed) + _JOINTS
        room -= cost
        if room < 0:
            break
        labelled.add(number)
        seen.update(with_parts((name, fact.changed)))
        kept.add((number, index))
    left: list[_Line] = []
    for number, line in enumerate(lines):
        scored = [one for index, one in enumerate(line.fact.scored_names) if (number, index) in kept]
        if scored or not _is_bare(line.fact):
            line.fact = line.fact if len(scored) == len(line.fact.names) else _named(line.fact, scored)
            line.fact = _with_changed(line.fact) if _is_bare(line.fact) and line.fact.changed else line.fact
            left.append(line)
    lines[:] = left
