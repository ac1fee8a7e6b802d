"""Condensing: the entries of chapters in less room.

Rules that people stated stay, whatever the room, and all that they wrote themselves as long as it fits. Beyond that it
is shortened after all else: after the agent's sentences, what each call was about, and the names least likely to be
needed again. Where even that finds no room, calls of the oldest rounds are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from ..messages.parsing import text_of
from ..messages.tokens import TokenCounter
from . import tuning
from .checkpoint import DigestEntry, Draft, Fact, Segment
from .identifiers import identifiers, names_in, with_parts
from .speech import GAP, OWN, RULE, joined, length, read, select, with_gaps, word_end
from .tuning import Tuning

_LEAST_SUBJECT = 36  # characters: a mark, a name, and a little of what it was about
_LEAST_TROUBLE = 48  # characters of an outcome that names trouble
_LEAST_OUTCOME = 16  # characters: a size, or the beginning of what went wrong
_WHOLE_NAME = 120  # characters: a name at the edge of what is cut stays up to this length
# An outcome that says least: how large the output was, with an excerpt or not.
_SIZE = re.compile(r'[\d,]+ (?:lines|characters)(?:, ".*")?|no output')
_FRAME = 30  # tokens of a chapter beside its entries: the tags, its span, and how many rounds it leaves out
_JOINTS = 5  # characters that join subject, outcome and names


def condense(
    entries: Sequence[DigestEntry],
    share: float,
    counter: TokenCounter,
    least: float = RULE,
    given: Tuning | None = None,
) -> list[DigestEntry | None]:
    """Return the entries in about `share` of their characters together, None for each that is left out.

    Args:
        share: above 0 and below 1.
        least: worth from which on people's sentences stay whatever the room.
        given: how the room is divided; by default `tuning.TUNING`.
    """
    shares = given or tuning.TUNING
    if not shares.one_ranking:
        alone = replace(shares, one_ranking=True)
        return [kept for entry in entries for kept in condense([entry], share, counter, least, alone)]
    size = sum(len(entry.text) for entry in entries)
    facts = [list(entry.facts) for entry in entries]
    whole = [fact for of_entry in facts for fact in of_entry]
    of_calls = sum(map(_cost, whole))
    of_names = sum(len(name) + 1 for fact in whole for name in fact.names)
    of_agent = sum(_length_of_speech(fact) for fact in whole if fact.sentences and fact.speaker == "agent")
    needed, own = (sum(_needed_for_people(fact, worth) for fact in whole) for worth in (least, OWN))
    room = max(int(size * share), needed)
    others = of_agent + of_calls + of_names
    people = min(int(room * shares.people), own + int(room * shares.pasted))
    people = max(people, needed, room - others)
    room -= _shorten_speech(facts, "person", people)
    room -= _shorten_speech(facts, "agent", max(int(room * shares.agent), room - of_calls - of_names))
    room -= _shorten_calls(facts, max(int(room * shares.calls), room - of_names))
    _choose_names(facts, room, shares.freshness)
    return _entries(entries, facts, counter)


def shorten_agent(entries: Sequence[DigestEntry], room: int, counter: TokenCounter) -> list[DigestEntry]:
    """Return the entries with at most about `room` characters of the agent's speech; facts left empty are dropped."""
    facts = [list(entry.facts) for entry in entries]
    _shorten_speech(facts, "agent", room)
    kept = [_with_names_of_silent(of_entry) for of_entry in facts]
    return [entry for entry in _entries(entries, kept, counter) if entry is not None]


def _entries(
    entries: Sequence[DigestEntry], facts: Sequence[Sequence[Fact]], counter: TokenCounter
) -> list[DigestEntry | None]:
    """Return the entries with other facts; None for each entry that has no fact with content."""
    changed: list[DigestEntry | None] = []
    for entry, of_entry in zip(entries, facts, strict=True):
        left = [fact for fact in of_entry if fact.sentences or fact.names or not fact.speaker]
        same = tuple(left) == entry.facts
        changed.append(entry if same else entry.with_facts(left, counter) if left else None)
    return changed


def only_people(entries: Sequence[DigestEntry], counter: TokenCounter, least: float = RULE) -> list[DigestEntry]:
    """Return the entries with nothing but people's sentences of at least this worth; entries without any are left out.

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
    """Return the tokens of a segment that is reduced to people's sentences of this worth; 0 if there are none."""
    if segment.chapter is not None:
        entries = only_people(segment.chapter.entries, counter, least)
        return min(segment.tokens, _FRAME + sum(entry.tokens for entry in entries)) if entries else 0
    if segment.round is None or not segment.is_human:
        return 0
    texts = [text_of(entry.message.get("content")) for entry in segment.round.entries if entry.human]
    kept = [sentence for text in texts for sentence in read(text, "person") if sentence.worth >= least]
    return min(segment.tokens, _FRAME + counter(joined(kept))) if kept else 0


def _of_people(fact: Fact, least: float) -> Fact | None:
    """Return the fact with nothing but a person's sentences of at least this worth; None if there are none."""
    kept = [index for index, sentence in enumerate(fact.sentences) if sentence.worth >= least]
    if not kept or fact.speaker != "person":
        return None
    return replace(fact, sentences=tuple(with_gaps(fact.sentences, kept)), names=(), scores=())


def _needed_for_people(fact: Fact, worth: float) -> int:
    """Return the characters that `select` needs to keep a person's sentences of at least this worth."""
    kept = [sentence for sentence in fact.sentences if fact.speaker == "person" and sentence.worth >= worth]
    return sum(len(sentence.text) + len(GAP.text) for sentence in kept) + len(fact.subject) + _JOINTS if kept else 0


def _length_of_speech(fact: Fact) -> int:
    """Return the characters of a speech, its label included."""
    return length(fact.sentences) + len(fact.subject) + _JOINTS


def _shorten_speech(facts: list[list[Fact]], speaker: str, room: int) -> int:
    """Bring the speeches of one kind of speaker into `room` characters, in place; return their characters then."""
    places = [
        (place, number)
        for place, of_entry in enumerate(facts)
        for number, fact in enumerate(of_entry)
        if fact.sentences and fact.speaker == speaker
    ]
    spoken = [facts[place][number] for place, number in places]
    labels = [len(fact.subject) + _JOINTS for fact in spoken]
    chosen = select([fact.sentences for fact in spoken], room, labels)
    taken = 0
    for (place, number), fact, label, kept in zip(places, spoken, labels, chosen, strict=True):
        if kept != fact.sentences:
            rest = set(identifiers(joined(kept)))
            lost = [name for name in identifiers(joined(fact.sentences)) if name not in rest]
            most = int((length(fact.sentences) - length(kept)) * tuning.TUNING.names_of_speech)
            facts[place][number] = _with_names(replace(fact, sentences=kept), _first(lost, most))
        taken += length(kept) + label if kept else 0
    return taken


def _first(names: Sequence[str], room: int) -> list[str]:
    """Return the first names that fit into `room` characters."""
    ends = accumulate(len(name) + 1 for name in names)
    return [name for name, end in zip(names, ends, strict=True) if end <= room]


def _with_names(fact: Fact, names: Sequence[str]) -> Fact:
    """Return the fact with names that were cut off, before its own names."""
    more = dict.fromkeys(names, tuning.TUNING.cut_name)
    return _named(fact, [*more.items(), *((name, score) for name, score in fact.scored_names if name not in more)])


def _named(fact: Fact, scored: Sequence[tuple[str, float]]) -> Fact:
    """Return the fact with other names."""
    return replace(fact, names=tuple(name for name, _ in scored), scores=tuple(score for _, score in scored))


def _shorten_calls(facts: list[list[Fact]], room: int) -> int:
    """Bring calls into their room (characters), the older the shorter, in place; return the characters they take.

    Of the oldest, nothing but the tool and names stay where not even the beginnings of all calls find room.
    """
    share = room / max(sum(_cost(fact) for of_entry in facts for fact in of_entry), 1)
    for place, of_entry in enumerate(facts):
        cut = of_entry
        if share < 1:
            part = share * (0.6 + 0.8 * place / max(len(facts) - 1, 1))
            cut = [fact if fact.sentences else _shortened(_without_size(fact), part) for fact in of_entry]
        of_entry[:] = _with_names_of_silent(cut)
    costs = [sum(map(_cost, of_entry)) for of_entry in facts]
    left = sum(costs)
    for place, cost in enumerate(costs[:-1]):
        if left <= room:
            break
        bare = [fact if fact.sentences else _bare(fact) for fact in facts[place]]
        facts[place][:] = [fact for fact in bare if fact.sentences or fact.names]
        left -= cost
    return left


def _bare(fact: Fact) -> Fact:
    """Return a call as its mark, its tool and its names, those of its arguments and outcome first."""
    mark, _, rest = fact.subject.partition(" ")
    tool, _, rest = rest.partition(" ")
    lost = identifiers(f"{rest} {fact.outcome}")
    return _with_names(replace(fact, subject=f"{mark} {tool}".rstrip(" :"), outcome=""), lost)


def _is_bare(fact: Fact) -> bool:
    """True for a call of which no more than its mark, its tool and names are there."""
    return bool(fact.names) and not fact.sentences and not fact.outcome and fact.subject.count(" ") <= 1


def _with_names_of_silent(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts of an entry without speech that lost its sentences; the next fact takes over its names."""
    kept: list[Fact] = []
    for fact in reversed(facts):
        if kept and fact.speaker and not fact.sentences:
            after = kept[-1]
            more = [scored for scored in fact.scored_names if scored[0] not in after.names]
            kept[-1] = _named(after, [*more, *after.scored_names])
        else:
            kept.append(fact)
    return kept[::-1]


def _cost(fact: Fact) -> int:
    """Return the characters of a call without its names, and of what joins them; 0 for a bare call, whose names pay."""
    return 0 if fact.sentences or _is_bare(fact) else len(fact.subject) + len(fact.outcome) + _JOINTS


def _without_size(fact: Fact) -> Fact:
    return replace(fact, outcome="") if _SIZE.fullmatch(fact.outcome) else fact


def _shortened(fact: Fact, share: float) -> Fact:
    """Return the fact with subject and outcome in about a share of their characters; names cut off become names."""
    room = int((len(fact.subject) + len(fact.outcome)) * share)
    outcome_room = max(_LEAST_TROUBLE if ': "' in fact.outcome else _LEAST_OUTCOME, room // 3)
    subject_room = max(_LEAST_SUBJECT, room - min(len(fact.outcome), outcome_room))
    subject, lost = _cut(fact.subject, subject_room, whole=_WHOLE_NAME)
    outcome, lost_too = _cut(fact.outcome, outcome_room)
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
    return f"{text[:end]} …", text[lost:]


def _choose_names(facts: list[list[Fact]], room: int, freshness: float) -> None:
    """Keep the names likeliest to be needed again in `room` characters, each once, in place.

    The first name of a bare call pays for its mark and tool; a bare call without a name is left out.
    """
    ranked = sorted(
        (
            (score + freshness * place / len(facts), place, number, index)
            for place, of_entry in enumerate(facts)
            for number, fact in enumerate(of_entry)
            for index, (_, score) in enumerate(fact.scored_names)
        ),
        reverse=True,
    )
    kept: set[tuple[int, int, int]] = set()
    seen = {name for of_entry in facts for fact in of_entry for name in names_in(fact.statement)}
    labelled: set[tuple[int, int]] = set()
    for _, place, number, index in ranked:
        name = facts[place][number].names[index]
        if name in seen:
            continue
        fact = facts[place][number]
        label = len(fact.subject) + _JOINTS if _is_bare(fact) and (place, number) not in labelled else 0
        room -= len(name) + 1 + label
        if room < 0:
            break
        labelled.add((place, number))
        seen.update(with_parts((name,)))
        kept.add((place, number, index))
    for place, of_entry in enumerate(facts):
        left: list[Fact] = []
        for number, fact in enumerate(of_entry):
            scored = [one for index, one in enumerate(fact.scored_names) if (place, number, index) in kept]
            if scored or not _is_bare(fact):
                left.append(fact if len(scored) == len(fact.names) else _named(fact, scored))
        of_entry[:] = left
