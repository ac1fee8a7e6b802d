"""What a question says of its answer besides words: whose it is, and of which day. Pure.

People ask "what did I say", "which did you recommend", "what did Nora say", "on May 3". The words are English; names of
speakers may be of any script that needs no combining marks (Devanagari does). A hint never excludes anything:
`ranking.rank` prefers what it names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

MAX_LABEL = 80  # characters of a text in which the name of its speaker is

_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month != "september" else "sept?(?:ember)?" for month in _MONTHS)
_ORDINAL = "(?:st|nd|rd|th)?"
_DATES = re.compile(
    rf"\b(?P<month>{_MONTH})\.? (?P<day>\d{{1,2}}){_ORDINAL}\b(?:,? (?P<year>\d{{4}})\b)?"
    rf"|\b(?P<day_2>\d{{1,2}}){_ORDINAL}(?: of)? (?P<month_2>{_MONTH})\b(?:,? (?P<year_2>\d{{4}})\b)?"
    rf"|\b(?P<month_3>{_MONTH})(?: of|,)? (?P<year_3>\d{{4}})\b"
    r"|\b(?P<year_4>\d{4})-(?P<month_4>\d\d)(?:-(?P<day_4>\d\d))?\b",
    re.IGNORECASE | re.ASCII,
)
# "Can you remind me": asks for something, and says nothing of the answer.
_REQUEST = re.compile(
    r"\b(?:can|could|would|will|do|if|please|may)\s+you\s+(?:\w+ly\s+|could\s+|please\s+)*\w+(?:\s+me)?", re.IGNORECASE
)
_SPEAKING = (
    "said|told|mentioned|recommended|suggested|provided|gave|given|listed|described|explained|wrote|shared|showed|"
    "used|called|named|created|proposed|advised|pointed|promised|answered"
)
_YOU = re.compile(
    rf"\bdid\s+you\b|\byou(?:['\u2019]ve|\s+have|\s+had)?\s+(?:\w+ly\s+)?(?:{_SPEAKING})\b", re.IGNORECASE
)
_I = re.compile(r"\b(?:I|[Mm]y|[Mm]ine|[Mm]yself)\b")  # not "me", which is in requests
# Words of most English questions, and of no question in Italian or Polish, where "I" and "my" are other words.
_ENGLISH = re.compile(
    r"\b(?:the|this|that|what|which|who|whose|when|where|why|how|did|does|have|has|had|of|is|are|were|said)\b",
    re.IGNORECASE,
)
# The name of the speaker, before a colon or the verb, perhaps after a date in brackets.
_LABEL = re.compile(
    r"\W*(?:\[[^\]]{0,60}\]|\([^)]{0,60}\))?\W*"
    r"(?P<name>[^\W\d_]{2,30}?)(?: [^\W\d_]{1,30})?[\s*_]*(?:[说說]?[:\uff1a]|\bsaid\b)"
)

Role = Literal["user", "assistant"]


class Date(NamedTuple):
    """A day, or a month, of a year or of any year: as digits, empty where the question does not say it."""

    year: str
    month: str
    day: str

    def has(self, created: str) -> bool:
        """The time is ISO 8601."""
        parts = (created[:4], created[5:7], created[8:10])
        return all(wanted in ("", part) for wanted, part in zip(self, parts, strict=True))


def asked_dates(question: str) -> tuple[Date, ...]:
    dates: list[Date] = []
    for found in _DATES.finditer(question):
        values = {name.partition("_")[0]: value for name, value in found.groupdict().items() if value}
        month, day = values["month"], values.get("day", "")
        if not month.isdigit():
            month = str(1 + next(at for at, name in enumerate(_MONTHS) if name.startswith(month[:3].lower())))
        dates.append(Date(values.get("year", ""), month.zfill(2), day and day.zfill(2)))
    return tuple(dates)


def asked_role(question: str) -> Role | None:
    """Return whose message a question asks for, if it says so: the person's own, or the agent's."""
    rest = _REQUEST.sub(" ", question)
    if _YOU.search(rest):
        return "assistant"
    return "user" if _I.search(rest) and _ENGLISH.search(question) else None


def speaker_label(folded: str) -> str:
    """Return the name that a folded text begins with, as in a chat of several people; empty if there is none."""
    found = _LABEL.match(folded[:MAX_LABEL])
    return found["name"] if found else ""


def asked_speaker(
    words: Iterable[str], unspaced: str, given: Collection[str], labels: Mapping[str, Sequence[str]]
) -> str:
    """Return the first name of a speaker in a question; empty if there is none.

    In a chat of several people most messages of a role begin with a name. Elsewhere the word before a colon is no
    speaker, as in "Error: ..." and "Note: ...". Names that the host gave are those of speakers, however few they are.

    Args:
        unspaced: characters of scripts without spaces: a name may be anywhere in them.
        given: names of authors that the host gave with the messages that were found.
        labels: names that the other ones begin with, by role; empty for a message without one.
    """
    names = {name for known in labels.values() if 2 * sum(map(bool, known)) > len(known) for name in known if name}
    names.update(given)
    inside = ((unspaced.find(name), name) for name in names if name in unspaced)
    return next((word for word in words if word in names), "") or min(inside, default=(0, ""))[1]
