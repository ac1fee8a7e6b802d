"""The material of a request: a range of the history, as a model is to read it, within a number of tokens.

A message begins with its mark and its speaker. Calls are numbered (`m4.2`), and each result names its call. Of an edit
the lines are shown that it took away and brought. Where there is no room for all, what calls say and changed stays
longest; of results the last line, errors and verdicts, and the lines that the agent went on to use. Nothing is shown
twice, and no reminder of a program.

Every line of a message but its first is indented, and tags are escaped, so that no content can pose as another message
or close the quotation.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import cache
from itertools import accumulate, islice
from typing import Any, NamedTuple, cast

from amplifier_context_core.compaction.digest import CHANGE_ARGUMENTS, edit_keys
from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.messages.escapes import read_escapes
from amplifier_context_core.messages.parsing import (
    Call,
    arguments_of,
    arguments_text,
    blocks_of,
    calls_of,
    json_text,
    result_text,
    results_of,
    text_of,
)
from amplifier_context_core.messages.reminders import is_command, is_skill, reason_of_refusal
from amplifier_context_core.messages.tokens import TokenCounter
from amplifier_context_core.rendering.quoting import escape_tags, single_line, without_surrogates
from amplifier_context_core.rendering.truncate import clip_text
from amplifier_context_core.transcript.entry import Entry

_LONG_LINE = 300  # characters of one line of a result
_SHORT_GAP = 40  # characters of lines that a note in their place would hardly shorten
_SHORT_ARGUMENT = 200  # characters of an argument that stays on the line of its call
_COMPARED = 400  # lines of an edit that are compared: the time for it grows with their square, at least
_TROUBLE = re.compile(
    r"\b(?:error|exception|fail(?:ed|ure|s)?|fatal|traceback|panic|denied|not found|cannot|undefined|"
    r"\d+ (?:passed|failed|errors?|warnings?|problems?)|exit (?:code|status))\b|"
    r"^\s*(?:ok|PASS|FAIL|--- FAIL)\b|^(?:[\w./-]{1,200}:\d+|\s+[\w./-]{1,200}):\d+: \S",
    re.IGNORECASE,
)
_SCANNED = 20_000  # lines of one result
_FREQUENT = 4  # lines of a result that a name may be in to say which of them were used
_REMINDER = re.compile(r"<(system-reminders?)[\s>]")


class Room(NamedTuple):
    """Characters that the parts of one message may have."""

    person: int
    agent: int
    arguments: int
    result: int


# A range has the largest of these and of those between at which it fits. Results give way first, then what calls were
# given, then speech.
_ROOMS = (
    Room(12_000, 6_000, 6_000, 12_000),
    Room(12_000, 6_000, 6_000, 4_000),
    Room(6_000, 3_000, 2_500, 1_000),
    Room(4_000, 2_000, 800, 300),
    Room(2_000, 800, 250, 160),
)
_BETWEEN = 8  # steps from one room to the next
_STEPS = _BETWEEN * (len(_ROOMS) - 1)


def _room(step: int) -> Room:
    """Return the room after 0 to `_STEPS` steps from the largest."""
    index, part = divmod(step, _BETWEEN)
    larger, smaller = _ROOMS[index], _ROOMS[min(index + 1, len(_ROOMS) - 1)]
    return Room(*(round(a * (b / a) ** (part / _BETWEEN)) for a, b in zip(larger, smaller, strict=True)))


class _Quotation:
    """A range as it is quoted, in one room after the other.

    What is the same in all rooms is made once: the arguments of calls as texts, and the order of the lines of results.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._people = people_in(entries)
        self._used, self._changed = _used(entries)
        self._texts: dict[str, dict[str, str]] = {}  # by the name of the call (`m4.2`)
        self._orders: dict[str, list[int]] = {}  # by the text of the result
        # Of one rendering:
        self._room = _ROOMS[0]
        self._calls: dict[str, tuple[str, bool]] = {}  # by id: the name, and whether the call changes a file
        self._seen: dict[str, str] = {}  # mark of the message in which a text came first

    def messages(self, room: Room, first: int = 0) -> list[str]:
        """Return the messages from an index on; an empty text where nothing of one is left."""
        self._room, self._calls, self._seen = room, {}, {}
        return ["\n".join(self._message(entry)) for entry in self._entries[first:]]

    def _message(self, entry: Entry) -> Iterator[str]:
        message, mark = entry.message, entry.mark
        results = list(results_of(message)) if entry.answered_ids else []
        spoken = _spoken(entry) if not results or not isinstance(message.get("content"), str) else ""
        if spoken:
            speaker = "person" if entry.seq in self._people else "agent" if entry.role == "assistant" else "program"
            most = self._room.person if speaker == "person" else self._room.agent
            yield _quoted(f"{mark} {speaker}", clip_text(self._once(spoken, mark), most))
        for number, call in enumerate(calls_of(message), 1):
            name = f"{mark}.{number}"
            self._calls[call.id] = (name, not CHANGE_ARGUMENTS.isdisjoint(arguments_of(call)))
            head = f"{name} call {single_line(call.name)[:60].replace(':', ' ')}"
            yield _quoted(head, self._arguments(call, name))
        for result in results:
            of, is_change = self._calls.get(result.call_id, ("an earlier call", False))
            text = _without_reminders(read_escapes(result_text(result.content))) or "(no output)"
            text = self._once(text, mark)
            yield _quoted(f"{mark} result of {of}", self._result(text, is_change=is_change))

    def _once(self, text: str, mark: str) -> str:
        if len(text) < 80:
            return text
        first = self._seen.setdefault(text, mark)
        return text if first == mark else f"(the same as in {first})"

    def _arguments(self, call: Call, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = _as_texts(_with_changes(arguments_of(call)))
        texts = self._texts[name]
        if not texts:
            return clip_text(arguments_text(call), self._room.arguments)
        short = {key for key, text in texts.items() if len(text) <= _SHORT_ARGUMENT and "\n" not in text.strip()}
        line = "; ".join(f"{single_line(key)}={text.strip()}" for key, text in texts.items() if key in short)
        room = max(80, self._room.arguments // max(1, len(texts) - len(short)))
        long = (f"{single_line(key)}:\n{text}" for key, text in texts.items() if key not in short)
        return "\n".join([clip_text(line, self._room.arguments), *(clip_text(text, room) for text in long)])

    def _result(self, text: str, *, is_change: bool) -> str:
        """Return a result cut to its room; of a change its first line says enough, unless it failed."""
        if reason_of_refusal(text):
            return clip_text(text, self._room.person)
        if is_change and _TROUBLE.search(text[:_LONG_LINE]) is None:
            return text.strip().split("\n", 1)[0][:_LONG_LINE]
        if len(text) <= self._room.result:
            return text
        lines = text.splitlines()[:_SCANNED]
        if len(lines) < 4:
            return clip_text(text, self._room.result)
        if text not in self._orders:
            self._orders[text] = list(dict.fromkeys(self._by_worth(lines)))
        kept: set[int] = set()
        room = self._room.result
        for index in self._orders[text]:
            size = min(len(lines[index]), _LONG_LINE) + 1
            if size <= room or not kept:
                room -= size
                kept.add(index)
            if room < 20:
                break
        return "\n".join(_with_gaps(lines, sorted(kept)))

    def _by_worth(self, lines: Sequence[str]) -> Iterator[int]:
        """Yield indices of lines, those worth most first; some come twice."""
        last = len(lines) - 1
        troubled = [index for index, line in enumerate(lines) if _TROUBLE.search(line[:_LONG_LINE])]
        yield last
        yield from (*troubled[:2], *troubled[-4:])
        yield 0
        yield from range(last - 1, max(last - 3, 0), -1)
        changed = [index for index, line in enumerate(lines) if _plain(line) in self._changed]
        yield from _around(changed, 2, last)
        held = [[name for name in identifiers(line[:_LONG_LINE], 20) if name in self._used] for line in lines]
        often = Counter(name for names in held for name in dict.fromkeys(names))
        named = [index for index, names in enumerate(held) if any(often[name] <= _FREQUENT for name in names)]
        yield from _around(named, 1, last)
        yield from _around(changed, 8, last)
        yield from troubled
        yield from range(last)


def material(entries: Sequence[Entry], counter: TokenCounter, max_tokens: int) -> str:
    """Return a range as it is quoted; where it has no room in any other way, the oldest messages are left out."""
    quotation = _Quotation(entries)

    @cache
    def messages(step: int) -> list[str]:
        return quotation.messages(_room(step))

    def fits(step: int) -> bool:
        return sum(counter(text) + 1 for text in messages(step)) <= max_tokens

    # The largest first: most ranges fit at once.
    step = 0 if fits(0) else bisect_left(range(_STEPS), True, key=fits)
    text = "\n".join(filter(None, messages(step)))
    if counter(text) > max_tokens:
        sizes = list(accumulate(counter(text) + 1 for text in reversed(messages(step))))
        first = min(len(entries) - bisect_right(sizes, max_tokens - 12), len(entries) - 1)
        # Rendered once more: what was the same as in a message that is left out is said now.
        text = "\n".join(
            [f"[{first} older messages are left out]", *filter(None, quotation.messages(_room(step), first))]
        )
    while counter(text) > max_tokens and len(text) > 200:
        text = clip_text(text, int(len(text) * min(0.9, max_tokens / counter(text))))
    return text


def people_in(entries: Iterable[Entry]) -> frozenset[int]:
    """Return the seqs of what a person wrote: no command of the host, not the prompt after it, no skill."""
    people: set[int] = set()
    is_prompt = False
    for entry in entries:
        text = text_of(entry.message.get("content")) if entry.human else ""
        if entry.human and not (is_prompt or is_command(text) or is_skill(text)):
            people.add(entry.seq)
        is_prompt = is_command(text)
    return frozenset(people)


def _without_reminders(text: str) -> str:
    parts: list[str] = []
    place = 0
    while (opening := _REMINDER.search(text, place)) and (end := text.find(f"</{opening[1]}>", opening.end())) >= 0:
        parts.append(text[place : opening.start()])
        place = end + len(opening[1]) + 3
    return "".join([*parts, text[place:]]).strip()


def _spoken(entry: Entry) -> str:
    content, blocks = entry.message.get("content"), blocks_of(entry.message)
    text = content if isinstance(content, str) else text_of([b for b in blocks if b.get("type") == "text"])
    images = " ".join("(image)" for block in blocks if "image" in str(block.get("type")))
    return "\n".join(part for part in (_without_reminders(text), images) if part)


def _with_changes(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if keys := edit_keys(given):
        rest = {key: value for key, value in given.items() if key not in keys}
        return {**rest, "change": _difference(*(given[key] for key in keys))}
    edits = given.get("edits")
    if isinstance(edits, list):  # several in one call
        return {**given, "edits": "\n".join(map(_text_of_edit, cast("list[Any]", edits)))}
    return given


def _text_of_edit(edit: Any) -> str:
    given = _with_changes(cast("dict[str, Any]", edit)) if isinstance(edit, dict) else {"": edit}
    return "\n".join(_as_texts(given).values())


def _as_texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json_text(value) for key, value in given.items()}


def _difference(before: str, after: str) -> str:
    """Return the lines that an edit takes away and brings, with a line around them."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _COMPARED:
        return f"{before}\n{after}"
    lines = islice(unified_diff(old, new, n=1, lineterm=""), 2, None)  # without the names of the files
    return "\n".join("..." if line.startswith("@@") else line for line in lines)


def _used(entries: Sequence[Entry]) -> tuple[frozenset[str], frozenset[str]]:
    names: set[str] = set()
    changed: set[str] = set()
    for entry in entries:
        if entry.role != "assistant":
            continue
        said = [_spoken(entry)]
        for call in calls_of(entry.message):
            for key, text in _as_texts(arguments_of(call)).items():
                said.append(text)
                if key in CHANGE_ARGUMENTS:
                    changed.update(plain for line in text.splitlines()[:400] if len(plain := _plain(line)) >= 8)
        for text in said:
            names.update(identifiers(text, 400))
    return frozenset(names), frozenset(changed)


def _plain(line: str) -> str:
    """Return a line without the number that a Read puts before it."""
    number, arrow, rest = line.partition("\u2192")
    return (rest if arrow and number.strip().isdigit() else line).strip()


def _around(places: Sequence[int], reach: int, last: int) -> Iterator[int]:
    for place in places:
        yield from range(max(0, place - reach), min(last, place + reach) + 1)


def _with_gaps(lines: Sequence[str], kept: Sequence[int]) -> Iterator[str]:
    place = 0
    for index in (*kept, len(lines)):
        gap = lines[place:index]
        if len(gap) > 1 and sum(map(len, gap)) > _SHORT_GAP:
            yield f"[... {len(gap)} lines]"
            place = index
        for line in lines[place : index + 1]:
            yield line if len(line) <= _LONG_LINE else f"{line[: _LONG_LINE - 2]} …"
        place = index + 1


def _quoted(head: str, text: str) -> str:
    """Return a message as quoted: its head, its text, and every further line indented."""
    return f"{head}: " + "\n  ".join(escape_tags(without_surrogates(text)).strip().splitlines())
