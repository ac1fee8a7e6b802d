"""Messages as numbered lines, and pages of them within a number of tokens.

A line of output longer than `MAX_LINE` characters counts as several lines. Where a page has no room for one line, it
holds a part of it. So every text can be read in pages.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from amplifier_context_core.messages.parsing import (
    Message,
    arguments_text,
    blocks_of,
    calls_of,
    result_text,
    results_of,
    text_of,
)
from amplifier_context_core.rendering.quoting import quoted, single_line, without_surrogates
from amplifier_context_core.transcript.recalled import source_line

Counter = Callable[[str], int]

MAX_LINE = 1_000  # characters of one line
_BYTES_PER_TOKEN = 8  # of a page; prose and code have 2 to 5, rows of one character up to 128 (o200k_base)
_MOST_BYTES = 100_000  # of a page; a view clips outputs above `max_tool_result_bytes`, by default 131,072
_PER_LINE = 1  # tokens that a line may cost beside those of its text


@dataclass(frozen=True, slots=True)
class Source:
    """One message, or one item of a pool, as lines.

    Attributes:
        mark: of the message, ``m12``; the id of an item.
        about: its author, or the tool that returned it.
    """

    mark: str
    about: str
    lines: tuple[str, ...]

    @property
    def header(self) -> str:
        """The line that names it."""
        return source_line(self.mark, self.about)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of some sources.

    Attributes:
        shown: lines that are in it, the last perhaps in part.
        cut_at: characters of the last line up to the end of the page; 0 if all of that line is shown.
    """

    text: str
    shown: int
    left_out: int
    cut_at: int = 0


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines of a text; a long one as several."""
    return tuple(
        line[start : start + MAX_LINE]
        for line in without_surrogates(text).split("\n")
        for start in range(0, max(1, len(line)), MAX_LINE)
    )


def source_of(mark: str, message: Message, tool: str = "") -> Source:
    """Return a message as lines: what it says, its calls, results in it.

    Args:
        tool: of a result, the tool that returned it, if the message does not name it.
    """
    role = str(message.get("role"))
    name = message.get("name")
    about = f"result of {tool or name or 'a tool'}" if role in ("tool", "function") else role
    return Source(mark, single_line(about)[:80], lines_of("\n".join(_texts(message))))


def text_lines(sources: Sequence[Source]) -> int:
    """Return the number of lines of all sources, without their headers."""
    return sum(len(source.lines) for source in sources)


def page_of(
    sources: Sequence[Source],
    what: str,
    *,
    offset: int,
    limit: int | None,
    tokens: int,
    counter: Counter,
    column: int = 0,
) -> Page:
    """Return a page of lines, quoted as data. Its bytes are bounded too, as a view clips by bytes.

    Args:
        offset: lines of the sources to pass over.
        limit: lines at most; None for as many as fit.
        column: characters of the first line to pass over.
    """
    bytes_at_most = min(_MOST_BYTES, _BYTES_PER_TOKEN * tokens)
    left, room = tokens - counter(quoted(what, "")), bytes_at_most - len(quoted(what, "").encode())
    body: list[tuple[str | None, str]] = []
    for header, line in _numbered(sources, offset):
        if limit is not None and len(body) >= limit:
            break
        part = line if body else line[column:]
        room -= sum(len(one.encode()) + 1 for one in (header, part) if one is not None)
        if room >= 0 or not body:
            left -= sum(counter(one) + _PER_LINE for one in (header, part) if one is not None)
        if min(left, room) < 0 and body:
            break
        body.append((header, part))

    def text_of_lines(lines: Sequence[tuple[str | None, str]]) -> str:
        return quoted(what, "\n".join(part for line in lines for part in line if part is not None))

    def is_too_large(text: str) -> bool:
        return len(text.encode()) > bytes_at_most or counter(text) > tokens

    if is_too_large(text_of_lines(body)):  # escaped tags cost more than the text as it was
        more = range(2, len(body) + 1)
        del body[1 + bisect_left(more, True, key=lambda size: is_too_large(text_of_lines(body[:size]))) :]
    total = text_lines(sources)
    left_out = max(0, total - min(offset, total) - len(body))
    text = text_of_lines(body)
    if len(body) != 1 or counter(text) <= tokens:
        return Page(text, len(body), left_out)
    ((header, line),) = body
    for named in (header, (header or "").split(", ")[0].rstrip("]") + "]"):  # the mark alone, where it has to do

        def cost(size: int, named: str | None = named) -> int:
            return counter(text_of_lines([(named, line[:size])]))

        size = bisect_right(range(len(line) + 1), tokens, key=cost) - 1
        if size >= min(1, len(line)):
            return Page(text_of_lines([(named, line[:size])]), 1, left_out, column + size if size < len(line) else 0)
    return Page(quoted(what, ""), 0, left_out + 1)


def _numbered(sources: Iterable[Source], offset: int) -> Iterator[tuple[str | None, str]]:
    """Yield the lines after an offset, the first of each source with its header."""
    for source in sources:
        first = min(offset, len(source.lines))
        offset -= first
        part = f", from its line {first + 1:,} of {len(source.lines):,}" if first else ""
        header: str | None = source_line(source.mark, source.about + part)
        for line in source.lines[first:]:
            yield header, line
            header = None


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    results = list(results_of(message))
    if message.get("role") in ("tool", "function") and message.get("tool_call_id"):
        yield result_text(content)
        return
    own = [block for block in blocks_of(message) if block.get("type") != "tool_result"]
    spoken = content if isinstance(content, str) else text_of(own)
    if spoken.strip():
        yield spoken
    for call in calls_of(message):
        yield f"call of {call.name}: {arguments_text(call)}"
    for result in results:
        yield f"result of {result.name or 'a call'}:"
        yield result_text(result.content)
