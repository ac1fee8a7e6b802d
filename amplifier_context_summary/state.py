"""The summary state: what models described: goal, rules, decisions, facts, files, tasks, failures, next step.

It is a value. `applied` makes the next one from a patch that was checked. Its size is bounded section by section, so it
does not grow with the number of compactions. Each item knows the patch that it came with; a chapter shows the items of
its own range, and a chapter that several were merged into shows the items of all of them.

Laws: a rule and a task that is done are never taken back by a patch; a task that is done does not become open again;
applying a patch twice is applying it once, as long as there is room. For this an id in a patch names an item from
before the patch, which its model was shown, and never one that the patch itself made: that is one whose text it states.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, get_args

from amplifier_context_core.messages.tokens import TokenCounter

from .patch import DoneTask, Patch, Statement

Section = Literal["goal", "correction", "rule", "decision", "fact", "file", "open", "done", "failure"]

# Share of `State` that the items of a section may fill, in hundredths. Chosen by hand: rules and open work first.
SHARES: Mapping[Section, int] = {
    "goal": 6,
    "correction": 8,
    "rule": 22,
    "decision": 14,
    "fact": 18,
    "file": 10,
    "open": 8,
    "done": 6,
    "failure": 8,
}
_KEPT_BY_CODE = frozenset({"goal", "rule", "file", "done"})  # no patch may drop these by id
_MOST_HINTS = 12
_MOST_CLOSED = 400  # hashes of tasks that were done and found no room any more
_LETTER: Mapping[Section, str] = {
    "goal": "g",
    "correction": "c",
    "rule": "r",
    "decision": "d",
    "fact": "f",
    "file": "a",
    "open": "t",
    "done": "t",
    "failure": "x",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the summary state.

    Attributes:
        id: its name in patches: ``t3``.
        section: what it is.
        text: what is so; of a rule the person's own words, of a file its path.
        detail: the reason of a decision, what was learned of a failure, the note on a file.
        marks: of the messages that show it; of a task that is done, its evidence.
        changed: highest seq of the range whose patch made or changed it.
    """

    id: str
    section: Section
    text: str
    detail: str = ""
    marks: tuple[str, ...] = ()
    changed: int = 0

    @property
    def line(self) -> str:
        """Return it as one line of a chapter."""
        shown = f" ({', '.join(self.marks[:4])})" if self.marks else ""
        match self.section:
            case "goal":
                return f"Goal: {self.text}{shown}"
            case "correction":
                return f"Corrected {self.id}: {self.text}{shown}"
            case "rule":
                return f'Rule{shown}: "{self.text}"'
            case "decision":
                return f"Decided {self.id}: {self.text}{f'; reason: {self.detail}' if self.detail else ''}{shown}"
            case "fact":
                return f"Found {self.id}: {self.text}{shown}"
            case "file":
                return f"File {self.text}: {self.detail}{shown}"
            case "open":
                return f"Open {self.id}: {self.text}{shown}"
            case "done":
                return f"Done {self.id}: {self.text}{shown}"
            case "failure":
                return f"Failed {self.id}: {self.text}{f'; learned: {self.detail}' if self.detail else ''}{shown}"


@dataclass(frozen=True, slots=True)
class FileUse:
    """What the calls of a range did to a file, read from the calls themselves.

    Attributes:
        path: as the calls name it.
        uses: ``read``, ``written``, ``run``, in this order, without repetition.
        mark: of the newest of these calls.
    """

    path: str
    uses: tuple[str, ...]
    mark: str


@dataclass(frozen=True, slots=True)
class State:
    """The summary state; see the module.

    Attributes:
        items: in the order in which they came, section by section.
        next: the next step.
        next_changed: highest seq of the range whose patch stated it.
        hints: words to search the history for, the newest last.
        made: items made so far, for ids that are never given twice.
        closed: hashes of tasks that were done and found no room.
    """

    items: tuple[Item, ...] = ()
    next: str = ""
    next_changed: int = 0
    hints: tuple[str, ...] = ()
    made: int = 0
    closed: tuple[str, ...] = ()

    def of(self, section: Section) -> list[Item]:
        """Return the items of a section, the oldest first."""
        return [item for item in self.items if item.section == section]

    def lines(self, first: int, last: int) -> list[StateLine]:
        """Return what a chapter of this range says: the items that patches of the range made or changed, and the rest.

        Args:
            first: lowest seq of the chapter.
            last: highest seq.
        """
        within = [item for item in self.items if first <= item.changed <= last]
        shown = [
            StateLine(item.line, _WORTH[item.section], item.text if item.section == "rule" else "")
            for section in SHARES
            for item in within
            if item.section == section and (section != "file" or "; " in item.detail)
        ]
        shown += _lists_of_files([item for item in within if item.section == "file" and "; " not in item.detail])
        if self.next and first <= self.next_changed <= last:
            shown.append(StateLine(f"Next: {self.next}", _WORTH["open"]))
            if self.hints:
                shown.append(StateLine(f"To find more, search for: {', '.join(self.hints)}", 0))
        return shown


@dataclass(frozen=True, slots=True)
class StateLine:
    """A line of a chapter, and how much it is worth: lines of the least worth go first where there is no room.

    Attributes:
        text: on one line.
        worth: 0 to 9.
        rule: the words of a rule; empty for all else.
    """

    text: str
    worth: int
    rule: str = ""


_WORTH: Mapping[Section, int] = {
    "goal": 9,
    "correction": 8,
    "rule": 9,
    "open": 8,
    "done": 5,
    "decision": 7,
    "failure": 6,
    "fact": 4,
    "file": 3,
}


def _lists_of_files(items: Sequence[Item]) -> Iterator[StateLine]:
    """Yield a line for each use of files that no note says more of."""
    uses: dict[str, list[str]] = {}
    for item in items:
        uses.setdefault(item.detail, []).append(item.text)
    for use, paths in uses.items():
        yield StateLine(f"Files {use}: {', '.join(paths)}", _WORTH["file"])


def applied(
    state: State,
    patch: Patch,
    upto: int,
    counter: TokenCounter,
    *,
    max_tokens: int,
    files: Sequence[FileUse] = (),
) -> State:
    """Return the state after a patch.

    Args:
        state: before it.
        patch: of the range that ends at `upto`; it was checked.
        upto: highest seq of the range.
        counter: text to tokens.
        max_tokens: size of the state; each section has its share.
        files: what the calls of the range did to files.
    """
    change = _Change(state, patch, upto)
    change.drop(patch.drop)
    if patch.goal:
        change.replace_goal(patch.goal.text, patch.goal.marks)
    for correction in patch.corrections:
        change.add("correction", correction.text, marks=correction.marks)
    for rule in patch.rules:
        change.add("rule", rule.quote, marks=rule.marks)
    for decision in patch.decisions:
        change.add("decision", decision.text, decision.reason, decision.marks)
    for fact in patch.facts:
        change.add("fact", fact.text, marks=fact.marks)
    for failure in patch.failures:
        change.add("failure", failure.text, failure.learned, failure.marks)
    for done in patch.done:
        change.finish(done.id, done.text, done.evidence)
    for task in patch.open:
        change.open(task.id, task.text, task.marks)
    notes = {note.path: note.note for note in patch.files}
    for use in files:
        change.touch(use, notes)
    hints = tuple(dict.fromkeys((*(hint for hint in state.hints if hint not in patch.hints), *patch.hints)))
    made = State(
        tuple(change.items),
        patch.next or state.next,
        upto if patch.next and patch.next != state.next else state.next_changed,
        hints[-_MOST_HINTS:],
        change.made,
        state.closed,
    )
    return bounded(made, counter, max_tokens)


def bounded(state: State, counter: TokenCounter, max_tokens: int) -> State:
    """Return the state with every section within its share: the items that changed longest ago go first."""
    kept: list[Item] = []
    closed = list(state.closed)
    for section, share in SHARES.items():
        room = max_tokens * share // 100
        left: list[Item] = []
        for item in sorted(state.of(section), key=lambda item: item.changed, reverse=True):
            room -= counter(item.line) + 1
            if room < 0 and (left or section not in ("goal", "rule")):
                break
            left.append(item)
        names = {item.id for item in left}
        kept += (item for item in state.of(section) if item.id in names)
        if section == "done":
            closed += (_key(item.text) for item in state.of(section) if item.id not in names)
    hints = state.hints
    while hints and counter(", ".join(hints)) > max_tokens // 20:
        hints = hints[1:]
    return replace(state, items=tuple(kept), hints=hints, closed=tuple(dict.fromkeys(closed))[-_MOST_CLOSED:])


@dataclass(slots=True)
class _Change:
    """A state while a patch is applied."""

    before: State
    patch: Patch
    upto: int
    items: list[Item] = field(default_factory=list[Item])
    made: int = 0
    known: frozenset[str] = frozenset()  # ids of items from before
    stated: frozenset[tuple[Section, str]] = frozenset()  # sections and keys of the texts that the patch states

    def __post_init__(self) -> None:
        self.items = list(self.before.items)
        self.made = self.before.made
        self.known = frozenset(item.id for item in self.items)
        self.stated = frozenset((section, _key(text)) for section, text in _stated(self.patch))

    def drop(self, ids: Sequence[str]) -> None:
        """Take items out; rules, files, the goal and what is done stay, and what the patch states again (`add`)."""
        self.items = [
            item for item in self.items if item.section in _KEPT_BY_CODE or not any(self._names(i, item) for i in ids)
        ]

    def replace_goal(self, text: str, marks: tuple[str, ...]) -> None:
        for index, item in enumerate(self.items):
            if item.section == "goal":
                if _key(item.text) != _key(text):
                    self.items[index] = replace(item, text=text, marks=marks, changed=self.upto)
                return
        self.add("goal", text, marks=marks)

    def add(self, section: Section, text: str, detail: str = "", marks: tuple[str, ...] = ()) -> None:
        """Add an item, unless its section holds the same text. An item that the patch drops is replaced by it."""
        for index, item in enumerate(self.items):
            if item.section == section and _key(item.text) == _key(text):
                if item.id in self.patch.drop and section not in _KEPT_BY_CODE:
                    self.items[index] = replace(item, text=text, detail=detail, marks=marks, changed=self.upto)
                return
        self.made += 1
        self.items.append(Item(f"{_LETTER[section]}{self.made}", section, text, detail, marks, self.upto))

    def finish(self, name: str, text: str, evidence: tuple[str, ...]) -> None:
        """Note a task as done: the open ones of this id and of this text, else one that no patch named before."""
        found = False
        for index, item in enumerate(self.items):
            is_named = self._names(name, item) or (not text and item.id == name)  # the checks know an id without text
            if item.section == "open" and (is_named or _key(item.text) == _key(text)):
                self.items[index] = replace(item, section="done", marks=evidence, changed=self.upto)
                found = True
        if text and not found and not self._is_done(name, text):
            self.add("done", text, marks=evidence)

    def open(self, name: str, text: str, marks: tuple[str, ...]) -> None:
        """Note an open task, unless it is done. Two of one id are two tasks: the second has a text of its own."""
        if ("done", _key(text)) in self.stated or self._is_done(name, text):
            return
        is_there = any(item.section == "open" and _key(item.text) == _key(text) for item in self.items)
        for index, item in enumerate(self.items):
            if item.section == "open" and self._names(name, item) and not is_there:
                self.items[index] = replace(item, text=text, marks=marks or item.marks, changed=self.upto)
                return
        self.add("open", text, marks=marks)

    def _names(self, name: str, item: Item) -> bool:
        """True if an id of the patch names an item; see the module."""
        return item.id == name and name in self.known and (item.section, _key(item.text)) not in self.stated

    def _is_done(self, name: str, text: str) -> bool:
        key = _key(text)
        return key in self.before.closed or any(
            item.section == "done" and (_key(item.text) == key or (item.id == name and name in self.known))
            for item in self.items
        )

    def touch(self, use: FileUse, notes: Mapping[str, str]) -> None:
        """Note what was done to a file."""
        for index, item in enumerate(self.items):
            if item.section == "file" and item.text == use.path:
                before, _, note = item.detail.partition("; ")
                uses = tuple(dict.fromkeys((*before.split(", "), *use.uses)))
                detail = _used(uses, notes.get(use.path, note))
                if (detail, (use.mark,)) != (item.detail, item.marks):
                    self.items[index] = replace(item, detail=detail, marks=(use.mark,), changed=self.upto)
                return
        self.add("file", use.path, _used(use.uses, notes.get(use.path, "")), (use.mark,))


def _stated(patch: Patch) -> Iterator[tuple[Section, str]]:
    """Yield the sections and texts of the items that a patch states and that ids can name."""
    listed: tuple[tuple[Section, Sequence[Statement | DoneTask]], ...] = (
        ("correction", patch.corrections),
        ("decision", patch.decisions),
        ("fact", patch.facts),
        ("failure", patch.failures),
        ("done", patch.done),
        ("open", patch.open),
    )
    for section, items in listed:
        for one in items:
            if one.text:
                yield section, one.text


def _used(uses: Sequence[str], note: str) -> str:
    return "; ".join(part for part in (", ".join(uses), note) if part)


def _key(text: str) -> str:
    """Return what two spellings of the same text have in common, as a short hash."""
    plain = " ".join("".join(letter if letter.isalnum() else " " for letter in text.casefold()).split())
    return blake2b((plain or text).encode("utf-8", "replace"), digest_size=8).hexdigest()


def as_json(state: State) -> dict[str, object]:
    """Return the state as a model is shown it."""
    shown: dict[str, object] = {}
    for section in get_args(Section):
        if items := state.of(section):
            shown[section] = [f"{i.text}: {i.detail}" if section == "file" else _shown(i) for i in items]
    if state.next:
        shown["next"] = state.next
    if state.hints:
        shown["hints"] = list(state.hints)
    return shown


def _shown(item: Item) -> dict[str, object]:
    return dict(_fields(item))


def _fields(item: Item) -> Iterator[tuple[str, object]]:
    yield "id", item.id
    yield "text", item.text
    if item.detail:
        yield "detail", item.detail
    if item.marks:
        yield "marks", list(item.marks)
