"""Plain sections: an answer that is no JSON, but headings with lists, read leniently.

A heading is a line such as ``## Open tasks``, ``**Decisions:**`` or ``3. Files and code:``. What follows it, up to the
next heading, are its items: list items, or paragraphs. A heading that is not known takes its items along as facts.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .patch import MAX_ITEMS, Patch

_HEADING = re.compile(
    r"(?:#{1,6} (?P<hashed>.+?)|(?:\d{1,2}[.)] ?)?\*\*(?P<bold>[^*]+?)\*\*|"
    r"(?:\d{1,2}[.)] )?(?P<plain>[^\W\d_][^:\n]{1,60})) ?:? ?$"
)
_SAME_LINE = re.compile(
    r"\s*(?:[-*]\s+)?(?:\d{1,2}[.)]\s+)?(?:\*\*)?(?P<name>[^\W\d_][\w /&-]{1,40}?)(?:\*\*)?:(?:\*\*)?\s+(?P<rest>\S.*)$"
)
_ITEM = re.compile(r"\s*(?:[-*\u2022+]|\d{1,3}[.)]|\[[ xX]\])\s+")
_TAGS = re.compile(r"</?(?:analysis|summary|state_snapshot)>", re.I)
_ANALYSIS = re.compile(r"<analysis>(?:(?!<analysis>).)*?</analysis>", re.I | re.S)
_MARK = re.compile(r"\bm[1-9]\d{0,8}\b")
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_LONGEST = 560  # characters of an item; what is longer is several
# Words of headings, in this order, and the field that their items go to.
_FIELDS: tuple[tuple[str, str], ...] = (
    ("next step", "next"),
    ("next", "next"),
    ("pending", "open"),
    ("open task", "open"),
    ("remaining", "open"),
    ("todo", "open"),
    ("to do", "open"),
    ("user message", "rules"),
    ("rule", "rules"),
    ("constraint", "rules"),
    ("instruction", "rules"),
    ("preference", "rules"),
    ("correct", "corrections"),
    ("feedback", "corrections"),
    ("error", "failures"),
    ("fail", "failures"),
    ("problem", "failures"),
    ("decision", "decisions"),
    ("intent", "goal"),
    ("objective", "goal"),
    ("goal", "goal"),
    ("request", "goal"),
    ("hint", "hints"),
    ("done", "done"),
    ("completed", "done"),
    ("accomplished", "done"),
)


def patch_in_sections(text: str) -> Patch:
    """Return the patch that sections of plain text make; an empty one if there are no sections."""
    fields: dict[str, list[str]] = {}
    for field, item in _items(_TAGS.sub("", _ANALYSIS.sub("", text))):
        fields.setdefault(field, []).append(item)
    if not fields:
        return Patch()

    def noted(field: str) -> list[dict[str, object]]:
        return [{"text": item, "marks": _MARK.findall(item)} for item in fields.get(field, [])]

    goals = noted("goal")
    return Patch.model_validate(
        {
            "goal": goals[0] if goals else None,
            "facts": [*noted("facts"), *goals[1:]][:MAX_ITEMS],
            "corrections": noted("corrections"),
            "rules": [{"quote": item} for item in fields.get("rules", [])],
            "decisions": noted("decisions"),
            "open": noted("open"),
            "done": [{"text": item, "evidence": _MARK.findall(item)} for item in fields.get("done", [])],
            "failures": noted("failures"),
            "next": " ".join(fields.get("next", [])[:2]),
            "hints": fields.get("hints", []),
        }
    )


def _items(text: str) -> Iterator[tuple[str, str]]:
    """Yield the items of a text, each with the field of its heading."""
    field = ""
    paragraph: list[str] = []

    def finished() -> Iterator[tuple[str, str]]:
        joined = " ".join(" ".join(paragraph).split())
        paragraph.clear()
        if field:
            yield from ((field, part) for part in _parts(joined))

    for line in text.splitlines():
        heading = _heading(line)
        if heading:
            yield from finished()
            field, rest = heading
            if rest:
                paragraph.append(rest)
        elif not line.strip():
            yield from finished()
        elif item := _ITEM.match(line):
            yield from finished()
            paragraph.append(line[item.end() :].strip())
        else:
            paragraph.append(line.strip())
    yield from finished()


def _heading(line: str) -> tuple[str, str] | None:
    """Return the field that a line is the heading of, and what follows it on the line; None if it is none."""
    line = " ".join(line.split())
    if line.endswith(":") or line.startswith(("#", "**")):
        found = _HEADING.match(line)
        name = next((part for part in found.group("hashed", "bold", "plain") if part), "") if found else ""
        if name and not _ITEM.match(line.lstrip("0123456789.) ")):
            return _field(name) or "facts", ""
    found = _SAME_LINE.match(line)
    if found and (field := _field(found["name"])):
        return field, found["rest"]
    return None


def _field(name: str) -> str:
    plain = name.casefold()
    return next((field for word, field in _FIELDS if word in plain), "")


def _parts(text: str) -> Iterator[str]:
    """Yield an item, or, of a long one, its sentences joined to parts that are short enough."""
    part = ""
    for sentence in _BETWEEN_SENTENCES.split(text.strip("*` ")) if text else ():
        if part and len(part) + len(sentence) > _LONGEST:
            yield part
            part = ""
        part = f"{part} {sentence}".strip()
    if part:
        yield part
