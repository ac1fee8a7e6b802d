"""The digest: a chapter written by rules.

Each round gets one entry: its mark, the speaker or the call, how the call ended, and the identifiers first seen there.
The output of a tool enters as identifiers and short quotations only, never as prose. Every fact takes a single
line and is escaped, so that no output can close the chapter or pose as an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ..messages.escapes import read_escapes
from ..messages.parsing import Call, Message, Result, arguments_of, blocks_of, calls_of, json_text, result_text, text_of
from ..messages.reminders import is_summary_of_host, reason_of_refusal
from ..messages.tokens import TokenCounter, count_message_tokens
from ..rendering.json_tables import to_compact_text
from ..rendering.quoting import TAG, single_line
from ..rendering.renderer import NOTE_METADATA, RenderedMessage
from ..rendering.rounds import Results, Round
from ..rendering.summaries import ResultSummaries, Summaries
from ..transcript.entry import Entry
from ..transcript.recalled import RECALL_TOOL
from . import tuning
from .checkpoint import Chapter, ChapterText, DigestEntry, Fact, Segment
from .excerpts import excerpt, is_addressed
from .identifiers import LONGEST, Names, identifiers, is_identifier, names_in
from .name_choice import candidates, constants, ends_of, pick
from .roots import root_of
from .speech import Sentence, Speaker, joined, length, read, select, take_prose, word_end

_ARGUMENT_CHARS = 120  # an argument value up to this long is quoted whole
_CHARS_PER_TOKEN = 3.0  # identifiers cost more tokens a character than prose
_LEAST_CHARS = 60
_LEAST_ARGUMENTS = 80  # characters of what a tool was called with
_MOST_CHARS = 3_000
_REASON_CHARS = 400  # of what a person said who refused a call
_VERDICT = re.compile(
    r"\b\d+ (?:\w+ ){0,2}(?:pass(?:ed|ing)|fail(?:ed|ing|ures?)|errors?|problems?|issues?|vulnerabilities)\b|"
    r"(?-i:^\W*(?:ok\s+\S|PASS|FAIL(?:ED|URE)?\b|SUCCESS))|"
    r"\b(?:tests?|build|checks?|lint|compilation) (?:is |are |was |were |has |have )?(?:pass|fail|succe|ok\b)|"
    r"\bexit(?:ed)?(?: with)? (?:code|status):? \d+|"
    r"(?-i:^\[(?:detached HEAD|\S{1,80})(?: \(root-commit\))? [0-9a-f]{7,40}\] \S)",  # what git says of a commit
    re.IGNORECASE,
)
_SHORT_OUTPUT = 80  # characters of one line: a shorter output is quoted whole
_RETURNED = re.compile(r'"((?:return|exit)_?code)": ?(-?[1-9]\d*)', re.IGNORECASE)  # JSON of a command that failed
_VERDICT_LINES = 12  # lines of an output, from its end, that may say how it ended
_VERDICT_CHARS = 100
# Arguments that hold the old and the new text of an edit, as coding agents name them.
EDIT_ARGUMENTS = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
)
# Those, and other arguments that hold what a call writes into a file.
CHANGE_ARGUMENTS = frozenset(chain.from_iterable(EDIT_ARGUMENTS)) | {"content", "file_text", "edits", "patch", "diff"}
_LEAST_SIDE = 64  # characters of what an edit brings
_PATH_MARKS = frozenset("/\\.")
# Words of a result that speaks of a file as changed, near its start.
_CHANGED = re.compile(
    r"\b(?:updated|created|written|wrote|edited|applied|saved|replaced|success(?:ful(?:ly)?)?\b(?!\W{1,3}false))",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:no|not|nothing|none|never|unchanged|skipped|0)\b|n['\u2019]t\b", re.IGNORECASE)
_CHANGED_CHARS = 400  # of its first line
_TROUBLE_TRIES = 8  # lines that only quote trouble, until it is taken that there is none
# A line of a compiler or a linter: `store.go:42:26: undefined: agent`.
_DIAGNOSTIC = re.compile(r"^[ \t]*[\w./@+-]*\.[A-Za-z]\w{0,9}:\d+:\d+: (?=\S)", re.MULTILINE)
# A numbered line of a file, or one a search found. A compiler's word follows its place at once.
_SOURCE = re.compile(
    r"\s*\d+\s*[\u2192|\t]|\s*[\w./@-]+[:-]\d+[:-](?!\d+: \S|\s*(?:\d+:\s*)?(?:fatal |)error)", re.IGNORECASE
)
_HEAD = re.compile(rf"<{TAG}>\n\[m(\d{{1,18}})(?: to m(\d{{1,18}}))? (?:in short: a record|left out\])")
_NO_TROUBLE = re.compile(
    r'"\w{0,40}(?:error|fail)\w{0,40}": ?(?:null|false|0|""|\[\]|\{\})[,}]', re.IGNORECASE
)  # JSON: none
_TROUBLE = (
    "error",
    "--- fail:",
    "exception",
    "failed",
    "failure",
    "fatal",
    "traceback",
    "denied",
    "not found",
    "cannot ",
)


def digest_round(
    round_: Round, known: Names, counter: TokenCounter, *, share: float, summaries: Summaries | None = None
) -> DigestEntry:
    """`known`: identifiers and words of excerpts that the chapter holds already; the entry's own are added; `share`: of
    the round's tokens that the entry's calls and names may cost, within readable limits.
    """
    room = max(_LEAST_CHARS, min(int(round_.tokens * share * _CHARS_PER_TOKEN), _MOST_CHARS))
    facts = tuple(_facts(round_, known, room, ResultSummaries(summaries or {})))
    facts = facts or (Fact(f"{round_.head.mark} {round_.head.role}: (nothing said)"),)
    return DigestEntry.of(round_, facts, counter)


def _rendered(
    entries: Sequence[DigestEntry], span: tuple[int, int], left_out: int, author: str, texts: Sequence[ChapterText]
) -> Message:
    """Return the message a chapter is sent as: tags that quote it as data, the role of the user, marked as no person's.

    Each fact, and each line of a text, takes one line, in which nothing can close the tags. A chapter without any has
    one short line: a conversation of short questions may have one between each two questions that stay.
    """
    metadata = {**NOTE_METADATA, "chapter": author}
    marks = f"m{span[0]}" if span[0] == span[1] else f"m{span[0]} to m{span[1]}"
    facts = [fact for entry in entries for fact in entry.facts]
    if not facts and not texts:
        content = f"<{TAG}>\n[{marks} left out]\n</{TAG}>"
        return {"role": "user", "content": content, "metadata": metadata}
    gap = f"; {left_out} round{'' if left_out == 1 else 's'} left out" if left_out else ""
    head = f"<{TAG}>\n[{marks} in short: a record, no instructions{gap}]"
    root = root_of(facts)
    if root is not None:
        head += f"\n{root.line}"
        facts = [root.shorten(fact) for fact in facts]
    lines = [line for written in texts for line in written.text.splitlines()]
    body = "".join(f"\n{single_line(line)}" for line in (*lines, *(fact.text for fact in facts)))
    return {"role": "user", "content": f"{head}{body}\n</{TAG}>", "metadata": metadata}


def chapter_spans(message: Message) -> list[tuple[int, int]]:
    """Return the lowest and the highest seq of each chapter in a message of a user; it may be forged."""
    if message["role"] != "user":
        return []
    return [(int(found[1]), int(found[2] or found[1])) for found in _HEAD.finditer(text_of(message.get("content")))]


def chapter_of(
    entries: Sequence[DigestEntry],
    counter: TokenCounter,
    *,
    left_out: int = 0,
    original_tokens: int | None = None,
    span: tuple[int, int] | None = None,
    texts: Sequence[ChapterText] = (),
    beside: Sequence[DigestEntry] | None = None,
    least: int = 0,
) -> tuple[Chapter, RenderedMessage]:
    """Return a chapter of these entries, and the message it is shown as.

    With texts it counts as no fewer tokens than without: so all that is decided by the size of a view is decided as for
    the digest's chapters, and what one of them keeps, texts cannot take.

    Args:
        left_out: rounds it replaces and does not describe.
        original_tokens: of all its rounds in the history; by default those of the rounds it describes.
        span: lowest and highest seq it replaces; by default from its first entry to its last.
        texts: of another author, shown first.
        beside: the entries as they are shown, for the texts of this chapter or of a later one; by default as they are.
        least: tokens that it counts at least.
    """
    total = sum(entry.original_tokens for entry in entries) if original_tokens is None else original_tokens
    span = span or (entries[0].first, entries[-1].last)
    plain = _rendered(entries, span, left_out, "digest", ())
    tokens = count_message_tokens(plain, counter)
    if not texts and beside is None:
        return Chapter(tuple(entries), total, left_out), RenderedMessage(plain, tokens)
    author = "summary" if texts else "digest"
    chapter = Chapter(tuple(entries), total, left_out, author, tuple(texts), None if beside is None else tuple(beside))
    unlisted = left_out + len(entries) - len(chapter.listed)
    message = _rendered(chapter.listed, span, unlisted, chapter.author, texts)
    least = max(least, tokens) if texts else least
    return chapter, RenderedMessage(message, max(least, count_message_tokens(message, counter)))


def with_texts(
    segment: Segment,
    texts: Sequence[ChapterText],
    beside: Sequence[DigestEntry] | None,
    counter: TokenCounter,
    rule: str,
    least: int = 0,
) -> Segment:
    """Return a chapter with other texts (see `chapter_of`); its entries stay.

    Args:
        texts: none for the chapter as the digest wrote it.
        rule: name of the strategy.

    Raises:
        ValueError: the segment is no chapter.
    """
    old = segment.chapter
    if old is None:
        raise ValueError(f"{segment.mark} is no chapter")
    chapter, shown = chapter_of(
        old.entries,
        counter,
        left_out=old.left_out,
        original_tokens=old.original_tokens,
        span=(segment.first, segment.last),
        texts=texts,
        beside=beside,
        least=least,
    )
    chapter = replace(chapter, made_at=old.made_at)
    return replace(segment, shown=(shown,), tokens=shown.tokens, rule=rule, chapter=chapter)


def with_round(segments: Sequence[Segment], fresh: Segment, round_: Round, counter: TokenCounter) -> list[Segment]:
    """Put a round, shown as `fresh`, into its place among segments, which are in the order of the history."""
    made: list[Segment] = []
    for segment in segments:
        if segment.chapter and segment.first <= round_.first <= segment.last:
            made.extend(without_round(segment, round_, counter))
        elif segment.first != round_.first:
            made.append(segment)
    later = (index for index, segment in enumerate(made) if segment.first > round_.first)
    made.insert(next(later, len(made)), fresh)
    return made


def without_round(segment: Segment, round_: Round, counter: TokenCounter) -> list[Segment]:
    """Return no segment if the chapter holds nothing else."""
    chapter = segment.chapter
    if chapter is None:
        raise ValueError(f"{segment.mark} is no chapter")
    entries = [entry for entry in chapter.entries if entry.first != round_.first]
    left_out = chapter.left_out - (len(entries) == len(chapter.entries))
    taken = {entry.seq for entry in round_.entries}
    first = segment.first
    while first in taken:
        first += 1
    if first > segment.last or (not entries and left_out <= 0):
        return []
    tokens = max(0, chapter.original_tokens - round_.tokens)
    rest, shown = chapter_of(
        entries,
        counter,
        left_out=max(0, left_out),
        original_tokens=tokens,
        span=(first, segment.last),
        texts=chapter.texts,
        beside=None if chapter.beside is None else [one for one in chapter.beside if one.first != round_.first],
    )
    rest = replace(rest, made_at=chapter.made_at)
    return [replace(segment, first=first, shown=(shown,), tokens=shown.tokens, original_tokens=tokens, chapter=rest)]


def quote(text: str, room: int) -> str:
    """Return a quotation of at most `room` characters and its "…", on one line; a word that is cut is left out."""
    flat = single_line(text[: room * 3])
    if len(flat) <= room and len(text) <= room * 3:
        return flat
    return flat[: word_end(flat, room, reach=room)] + " …"


def _facts(round_: Round, known: Names, room: int, summaries: ResultSummaries) -> Iterable[Fact]:
    results = Results(round_.entries)
    calls = sum(len(entry.call_ids) for entry in round_.entries if entry.role == "assistant")
    for entry in round_.entries:
        spoken = _spoken(entry)
        if spoken.strip():
            yield _speech(entry, spoken, known, room if not calls else max(_LEAST_CHARS, room // 3))
        if entry.role == "assistant":
            for call in calls_of(entry.message):
                found = results.take(call.id)
                yield from _call(entry, call, found, known, max(_LEAST_CHARS, room // max(calls, 1)), summaries)
    for entry, result in results.left():
        size, text = _read_output(result_text(result.content))
        head = f"{entry.mark} result of {single_line(result.name or 'an earlier call')}"
        yield _fact(head, size, candidates(text, 1.0), known, room)


def _spoken(entry: Entry) -> str:
    """Leave tool results out."""
    content = entry.message.get("content")
    if isinstance(content, str):
        return "" if entry.answered_ids else content
    return text_of([block for block in blocks_of(entry.message) if block.get("type") != "tool_result"])


def _speech(entry: Entry, text: str, known: Names, room: int) -> Fact:
    is_summary = entry.role == "user" and not entry.human and is_summary_of_host(text)  # a model wrote it
    speaker: Speaker = "person" if entry.human else "agent" if entry.role == "assistant" or is_summary else ""
    name = "summary" if is_summary else entry.message.get("name")
    speaker_name = single_line(name)[:60] if isinstance(name, str) and name else entry.role
    if not speaker:
        line = quote(text, room)
        known.update(names_in(line))
        return _fact(f"{entry.mark} {speaker_name}: {line}", "", candidates(text, 2.0), known, room // 2)
    shares = tuning.TUNING
    most = shares.person_chars if entry.human else shares.summary_chars if is_summary else shares.agent_chars
    spoken = read(text, speaker)
    if speaker == "agent" and entry.call_ids:
        spoken = _beside_calls(spoken)
    [sentences] = select([spoken], most)
    known.update(names_in(joined(sentences)))
    fact = _fact(
        f"{entry.mark} {speaker_name}", "", candidates(text, 2.0) if len(text) > most else [], known, room // 2
    )
    return replace(fact, speaker=speaker, sentences=sentences)


def _beside_calls(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """What the agent says at the end of a turn is worth more."""
    return tuple(Sentence(one.text, round(one.worth * tuning.TUNING.beside_calls, 3)) for one in sentences)


def _call(
    entry: Entry, call: Call, found: tuple[Entry, Result] | None, known: Names, room: int, summaries: ResultSummaries
) -> Iterable[Fact]:
    """Yield a call with its outcome, and then, of one that a person refused, the reason."""
    arguments, sentences = _without_prose(arguments_of(call))
    shown, hidden, named = _show_call(arguments, max(_LEAST_ARGUMENTS, room // 2), known)
    name = single_line(call.name)[:60] or "call"
    head = f"{entry.mark} {name} {shown}".rstrip()
    known.update(names_in(shown))
    if call.name == RECALL_TOOL:  # its result is a copy: a chapter has the facts of the original
        yield Fact(head)
        return
    changed = _changed_file(arguments)
    if sentences:
        known.update(names_in(joined(sentences)))
        yield Fact(f"{entry.mark} {name}, text", speaker="agent", sentences=_beside_calls(sentences))
    if found is None:
        fact = _fact(head, "no result", candidates(hidden, 1.5), known, room // 2)
        yield replace(fact, changed=changed)
        return
    result_entry, result = found
    size, text = _read_output(result_text(result.content))
    reason = ""
    summary = summaries.of(result_entry, call.id)
    if summary is not None:
        outcome = quote(summary, room)
    elif reason := reason_of_refusal(text):
        outcome, text = "refused", ""
    else:
        outcome = _outcome(size, text, known, bool(changed))
    known.update(names_in(outcome))
    ranked = [*named, *candidates(hidden, 1.5), *candidates(text, 1.0)]
    room -= (len(head) + length(sentences)) // 2
    yield replace(_fact(head, outcome, ranked, known, max(30, room)), changed=changed)
    if reason:  # ranked as the agent's words: a result is no person, and states no rule
        sentences = read(quote(reason, _REASON_CHARS), "agent")
        yield Fact(f"{result_entry.mark} result, a refusal", speaker="agent", sentences=sentences)


def _without_prose(arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Sentence]]:
    """Return arguments without what the agent publishes by them, and that. What goes into a file is not published."""
    if not CHANGE_ARGUMENTS.isdisjoint(arguments):
        return arguments, []
    left: dict[str, Any] = {}
    taken: list[Sentence] = []
    for key, value in arguments.items():
        left[key], sentences = take_prose(value) if isinstance(value, str) else (value, [])
        taken += sentences
    return left, taken


def _fact(head: str, outcome: str, ranked: Sequence[tuple[float, str]], known: Names, room: int) -> Fact:
    chosen = pick(ranked, known, room)
    return Fact(head, outcome, tuple(name for _, name in chosen), tuple(worth for worth, _ in chosen))


def _read_output(text: str) -> tuple[str, str]:
    """Return the size of an output, or all of a short one in quotation marks, and the parts of it that are read."""
    if not text.strip():
        return "no output", ""
    if len(text) <= _SHORT_OUTPUT and "\n" not in text:
        return f'"{single_line(text)}"', text
    ends = ends_of(text)
    read = read_escapes(ends)
    lines = text.count("\n") + (text.count(r"\n") if read is not ends else 0) + 1
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters", read


def _outcome(size: str, text: str, known: Names, is_change: bool) -> str:
    """Return how a call ended: a short result, or its size with its verdict and first error, or with an excerpt.

    Of a call that wrote a file, and of whose result neither is found: "ok" if its first line speaks of a change and
    denies none, else how the result begins.
    """
    is_short = size.startswith('"')
    if not text or (is_short and not is_change):
        return size
    verdict, trouble = quote(_verdict(text), _VERDICT_CHARS), quote(_trouble(text).strip(" =\t"), 140)
    said = [line for line in ("" if verdict in trouble else verdict, trouble) if line]
    if is_change and not said:
        head = text[:_CHANGED_CHARS].partition("\n")[0]
        if _CHANGED.search(head) and not _NEGATED.search(head):
            return "ok"
        begins = quote(text, _SHORT_OUTPUT)
        return size if is_addressed(begins) else f'"{begins}"'
    if is_short:
        return size
    if said:
        return f"{size}: " + ", ".join(f'"{line}"' for line in said)
    line = excerpt(text, known, _SOURCE, tuning.TUNING.excerpt_chars)
    return f'{size}, "{line}"' if line else size


def _verdict(text: str) -> str:
    """Return the last line near the end that says how a run of tests or a check ended, unless it is source code."""
    for line in reversed(text[-4_000:].splitlines()[-_VERDICT_LINES:]):
        line = line[:300]
        if _VERDICT.search(line) and not _SOURCE.match(line):
            return line.strip(" =-\t")
    returned = _RETURNED.search(text[-4_000:])
    return f"{returned[1]} {returned[2]}" if returned else ""


def _trouble(text: str) -> str:
    """Return the first line that reports an error, near the start or the end, unless it is quoted source code."""
    for end_of_text in (text[:4_000], text[-4_000:]):
        part = _NO_TROUBLE.sub("", end_of_text)
        lowered = part.lower()
        if len(lowered) != len(part):
            continue
        end = 0
        for _ in range(_TROUBLE_TRIES):
            places = [place for word in _TROUBLE if (place := lowered.find(word, end)) >= 0]
            places += [found.start() for found in (_DIAGNOSTIC.search(part, end),) if found]
            if not places:
                break
            first = min(places)
            start = part.rfind("\n", 0, first) + 1
            end = part.find("\n", first)
            end = end if end >= 0 else len(part)
            if not _SOURCE.match(part, start, end):
                return part[max(start, first - 80) : end][:300]
    return ""


def edit_keys(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of the arguments that hold the old and the new text, if a call is an edit."""
    edits = (keys for keys in EDIT_ARGUMENTS if all(isinstance(arguments.get(key), str) for key in keys))
    return next(edits, None)


def _changed_file(arguments: Mapping[str, Any]) -> str:
    """Return the path of the file that a call writes; empty for a call that writes none, and for a path with spaces."""
    if CHANGE_ARGUMENTS.isdisjoint(arguments):
        return ""
    texts = (value for value in arguments.values() if isinstance(value, str) and len(value) <= LONGEST)
    paths = (text for text in texts if text.split() == [text] and not _PATH_MARKS.isdisjoint(text))
    return single_line(next(paths, ""))


def _show_call(arguments: Mapping[str, Any], room: int, known: Names) -> tuple[str, str, list[tuple[float, str]]]:
    """Return the arguments in at most about `room` characters, the text that did not fit, and constants of an edit.

    Of an edit the lines that it brings come before those that it takes away: condensing cuts the end.
    """
    keys = edit_keys(arguments)
    if keys is None:
        return *_show_arguments(arguments, room, known), []
    before, after = (arguments[key] for key in keys)
    rest = {key: value for key, value in arguments.items() if key not in keys}
    shown, hidden = _show_arguments(rest, room // 2, known)
    taken, brought = _changed_lines(before, after)
    parts = (shown, _side("+", brought, taken, max(_LEAST_SIDE, room // 4)), _side("-", taken, brought, room // 4))
    return " ".join(filter(None, parts)), f"{hidden}\n{before}\n{after}", constants(taken, brought)


def _show_arguments(arguments: Mapping[str, Any], room: int, known: Names) -> tuple[str, str]:
    """Return the arguments in at most about `room` characters, and the text that did not fit."""
    shown: list[str] = []
    hidden: list[str] = []
    ordered = sorted(arguments.items(), key=lambda item: item[1] is None or isinstance(item[1], bool))
    for key, value in ordered:
        text = value if isinstance(value, str) else to_compact_text(value)
        flat = single_line(text[:400])
        limit = min(_ARGUMENT_CHARS, max(20, room)) if shown else _ARGUMENT_CHARS
        fits, has_room = len(flat) <= limit and len(text) <= 400, room > 0 or not shown
        if not (fits and has_room):
            hidden.append(value if isinstance(value, str) else read_escapes(json_text(value)))  # its keys rank low
        if not has_room:
            continue
        if fits:
            named = bool(shown) or (is_identifier(key) and key not in known)
            piece = f"{single_line(key)[:40]}={flat}" if named else flat
        else:
            end = _whole_words(flat, limit * 3 // 4 if len(text) <= 400 else limit // 2)
            piece = f"{single_line(key)[:40]}={flat[:end]} … ({len(text):,} characters)"
        shown.append(piece)
        room -= len(piece)
    return " ".join(shown), "\n".join(hidden)


def _changed_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines from the first to the last that differ, of both texts."""
    before, after = old.splitlines(), new.splitlines()
    both = range(min(len(before), len(after)))
    start = next((n for n in both if before[n] != after[n]), len(both))
    end = next((n for n in both[: len(both) - start] if before[-1 - n] != after[-1 - n]), len(both) - start)
    return before[start : len(before) - end], after[start : len(after) - end]


def _side(sign: str, lines: Sequence[str], others: Sequence[str], room: int) -> str:
    """Return one side of an edit; where it is cut, it begins at the first word that the other side does not have."""
    filled, other = ([line.strip() for line in side if line.strip()] for side in (lines, others))
    text, room = " ".join(filled), max(20, room)
    shown = quote(text, room)
    if len(shown) < len(text):
        pairs = zip(text[:_MOST_CHARS], " ".join(other)[:_MOST_CHARS], strict=False)
        end = next((at for at, (one, two) in enumerate(pairs) if one != two), 0)
        same = text.rfind(" ", 0, end) + 1
        shown = f"… {quote(text[same:], room - 2)}" if same > 2 else shown
    size = f" ({len(filled):,} lines)" if len(filled) > 1 and len(shown) < len(text) else ""
    return f"{sign} {shown}{size}" if filled else ""


def _whole_words(text: str, end: int) -> int:
    """Return the end of the last word before `end`, or of the word there if it is a name or the first, and no data.

    A path that is cut looks like another path.
    """
    cut = word_end(text, end, reach=end)
    start = 0 if cut == end else cut
    after = text.find(" ", start + 1)
    after = after if after >= 0 else len(text)
    return after if after - start <= LONGEST and (not start or identifiers(text[start:after], 1)) else cut
