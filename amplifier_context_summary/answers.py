"""Reading an answer: which one counts, and the lines under its headings.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from amplifier_context_core.messages.usage import text_of_answer
from amplifier_context_core.rendering.quoting import without_controls

from .text import MAX_CHARS, MAX_LINES, Section

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length"})
_REFUSED = frozenset({"refusal", "refused", "content_filter", "safety", "prohibited_content", "blocked"})
_REFUSAL = re.compile(
    r"(?:i['\u2019]?m sorry|sorry|i can(?:not|['\u2019]t)|i am unable|i['\u2019]m unable|as an ai)\b", re.I
)
_MOST_CHARS = 400_000  # of an answer; a longer one is not read
_HEADING = re.compile(r"#{1,6}\s(?P<marked>.{1,80})|\*\*(?P<bold>[^*]{1,80})\*\*:?|\d{1,2}\.\s(?P<listed>[^:]{1,80}):")
# Words of headings, in the order in which they are looked for: models word them in their own way.
_WORDS: tuple[tuple[Section, tuple[str, ...]], ...] = (
    ("work", ("work", "task", "state", "status", "next", "todo", "progress")),
    ("files", ("file", "code")),
    ("values", ("value", "exact", "command")),
    ("findings", ("finding", "found", "deci", "learn", "error", "problem", "concept", "fact", "fail")),
    ("person", ("person", "user", "goal", "rule", "request", "want")),
)
_NOTHING = frozenset({"none", "nothing", "n/a", "-"})


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


def lines_in(answer: Reply) -> list[tuple[Section, str]]:
    """Return the lines of an answer with their headings, without bullets and control characters.

    Raises:
        RejectedAnswer: it is empty, cut off, a refusal, too long, or has no line under one of the headings.
    """
    if answer.finish_reason in _CUT:
        raise RejectedAnswer("it was cut off by the output limit; be shorter")
    if answer.finish_reason in _REFUSED or _REFUSAL.match(answer.text.strip()):
        raise RejectedAnswer("the model refused")
    if not answer.text.strip():
        raise RejectedAnswer("it asked for tools" if answer.has_calls else "it was empty")
    if len(answer.text) > _MOST_CHARS:
        raise RejectedAnswer("it was far too long")
    section: Section | None = None
    lines: list[tuple[Section, str]] = []
    for raw in answer.text.splitlines():
        line = " ".join(without_controls(raw).split())
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            section = _section_of(next(part for part in heading.groups() if part))
            continue
        text = line.lstrip("-*\u2022 ") if line.startswith(("- ", "* ", "\u2022 ")) else line
        if section is not None and text and text.rstrip(".").casefold() not in _NOTHING:
            lines.append((section, _cut(text)))
    if not lines:
        raise RejectedAnswer("it had no line under one of the five headings")
    return lines[:MAX_LINES]


def _section_of(heading: str) -> Section | None:
    words = heading.casefold()
    return next((section for section, known in _WORDS if any(word in words for word in known)), None)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS].rsplit(" ", 1)[0] + " …"
