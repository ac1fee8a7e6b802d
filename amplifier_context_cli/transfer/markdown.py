"""A session as Markdown, for people. It is not read back.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from amplifier_context_core import Entry
from amplifier_context_core.messages.parsing import arguments_text, calls_of, result_text, results_of, text_of

_FENCES = re.compile(r"`{3,}")


def write_markdown(session_id: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the page: a heading for each message, what calls and results say in code blocks."""
    yield f"# {_inline(session_id)}\n"
    for entry in entries:
        yield f"\n## {entry.mark} {entry.role}{f', {entry.created}' if entry.created else ''}\n"
        results = list(results_of(entry.message))
        text = "" if entry.role == "tool" else text_of(entry.message.get("content"))
        if text:
            yield f"\n{text}\n"
        for call in calls_of(entry.message):
            yield f"\n{_inline(call.name)}\n\n{_fenced(arguments_text(call), 'json')}\n"
        for result in results:
            yield f"\n{_fenced(result_text(result.content))}\n"


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max(3, 1 + max((len(found) for found in _FENCES.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _inline(text: str) -> str:
    return text.replace("\n", " ")
