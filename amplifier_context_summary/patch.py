"""The patch: what a model is asked for, as data.

A model does not write prose over prose. It names what a range of the history changes in the summary state, and code
applies that (`state.py`). A patch is small, so its output is cheap, and applying it twice is applying it once.

Reading is lenient: a list item that makes no sense is left out, the others stay. What a patch claims is checked against
the history in `checks.py`.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from amplifier_context_core.rendering.quoting import without_controls

MAX_ITEMS = 40  # items of one list; a patch with more is not read to its end
MAX_CHARS = 600  # characters of one text; what is longer is cut at the end of a word
MAX_QUOTE = 2_000  # characters of a quotation; a longer one is left out, for a cut one is no quotation
MAX_MARKS = 8  # marks of one item of the summary state
_MARK = re.compile(r"m?([1-9]\d{0,17})")

Model = TypeVar("Model", bound=BaseModel)


def _joined(text: str) -> str:
    """Return a text on one line, without characters that control how it is shown: chapters quote it."""
    return " ".join(without_controls(text).split())


def _text(value: object) -> object:
    """Return a text on one line, cut at `MAX_CHARS`."""
    if not isinstance(value, str):
        return value
    line = _joined(value)
    return line if len(line) <= MAX_CHARS else line[:MAX_CHARS].rsplit(" ", 1)[0] + " …"


def _marks(value: object) -> object:
    """Return marks as a tuple such as ``("m3", "m7")``: from a list, one mark, or numbers."""
    if value is None:
        return ()
    listed = list(cast("list[object]", value)) if isinstance(value, (list, tuple)) else [value]
    found: list[str] = []
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, (str, int)):
            continue
        found.extend(f"m{number}" for number in _MARK.findall(str(one)))
    return tuple(dict.fromkeys(found))


Text = Annotated[str, BeforeValidator(_text)]
Marks = Annotated[tuple[str, ...], BeforeValidator(_marks)]


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Statement(_Item):
    """Something that is so.

    Attributes:
        text: one or two sentences.
        marks: of the messages that show it.
    """

    text: Text = Field(min_length=1)
    marks: Marks = ()


class Rule(_Item):
    """What a person demanded or forbade, word for word.

    Attributes:
        quote: the person's own words.
        marks: of the message that holds them.
    """

    quote: str = Field(min_length=1, max_length=MAX_QUOTE)
    marks: Marks = ()


class Decision(Statement):
    """A decision; `reason` is why."""

    reason: Text = ""


class FileNote(_Item):
    """What a file or another artefact is for, or what was done to it. Which files there are is read from the calls."""

    path: str = Field(min_length=1, max_length=MAX_CHARS)
    note: Text = Field(min_length=1)


class Task(Statement):
    """A task that is not done; `id` is that of an open task of the state, empty for a new one."""

    id: str = ""


class DoneTask(_Item):
    """A task that is done.

    Attributes:
        id: of an open task of the state, empty for another one.
        text: what was done; may be empty if `id` names a task.
        evidence: marks of results, or of a person's words, that show it. Without one, the task does not count as done.
    """

    id: str = ""
    text: Text = ""
    evidence: Marks = ()


class Failure(Statement):
    """What failed; `learned` is what follows from it."""

    learned: Text = ""


def _each(model: type[Model]) -> Callable[[object], object]:
    """Return a reader of a list: items that do not fit the model are left out, a bare text is its first field."""
    first = next(name for name in ("text", "quote", "path") if name in model.model_fields)
    spellings = {"mark": "marks"}

    def read(value: object) -> object:
        many = isinstance(value, (list, tuple))
        listed = list(cast("list[object]", value)) if many else [value] if value else []
        items: list[Any] = []
        for one in listed[:MAX_ITEMS]:
            given = {first: one} if isinstance(one, str) else one
            if isinstance(given, dict):
                given = {spellings.get(str(key), str(key)): part for key, part in cast("dict[Any, Any]", given).items()}
            try:
                items.append(model.model_validate(given))
            except ValidationError:
                continue
        return items

    return read


def _one(value: object) -> object:
    """Return a statement from an object or a bare text; None if it makes no sense."""
    items = _each(Statement)(value)
    return cast("list[Statement]", items)[0] if items else None


def _words(value: object) -> object:
    """Return short texts, from a list or one text with commas."""
    listed = value.split(",") if isinstance(value, str) else value
    many = cast("list[object]", listed) if isinstance(listed, (list, tuple)) else []
    texts = [one for one in many if isinstance(one, str)]
    return tuple(dict.fromkeys(line[:80] for one in texts[:MAX_ITEMS] if (line := _joined(one))))


def _line(value: object) -> object:
    """Return the next step as text, also from an object with a text."""
    if isinstance(value, dict):
        value = cast("dict[Any, Any]", value).get("text", "")
    return _text(value) if isinstance(value, str) else ""


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class Patch(_Item):
    """What a range of the history changes in the summary state. All fields may be left out.

    Attributes:
        goal: what the person wants, if the range states it or changes it.
        corrections: what a person corrected.
        rules: what a person demanded or forbade, word for word.
        decisions: with their reasons.
        facts: what was found out.
        files: notes on files and other artefacts.
        open: tasks that are not done.
        done: tasks that are done, each with evidence.
        failures: what failed, and what was learned.
        next: the next step.
        hints: words to search the history for.
        drop: ids of decisions, facts, open tasks, failures and corrections of the state that do not hold any more.
    """

    goal: Annotated[Statement | None, BeforeValidator(_one)] = None
    corrections: Annotated[tuple[Statement, ...], BeforeValidator(_each(Statement))] = ()
    rules: Annotated[tuple[Rule, ...], BeforeValidator(_each(Rule))] = ()
    decisions: Annotated[tuple[Decision, ...], BeforeValidator(_each(Decision))] = ()
    facts: Annotated[tuple[Statement, ...], BeforeValidator(_each(Statement))] = ()
    files: Annotated[tuple[FileNote, ...], BeforeValidator(_each(FileNote))] = ()
    open: Annotated[tuple[Task, ...], BeforeValidator(_each(Task))] = ()
    done: Annotated[tuple[DoneTask, ...], BeforeValidator(_each(DoneTask))] = ()
    failures: Annotated[tuple[Failure, ...], BeforeValidator(_each(Failure))] = ()
    next: Annotated[str, BeforeValidator(_line)] = ""
    hints: Words = ()
    drop: Words = ()

    @property
    def is_empty(self) -> bool:
        """True if it says nothing."""
        return not any(getattr(self, name) for name in type(self).model_fields)
