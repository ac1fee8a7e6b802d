"""What a run prints: one line for each request, once its answer is known, and one for each compaction."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import click

from amplifier_context_cli.formatting import display_width, printable, screen_width, truncate

from ..checks.message_shapes import Call

StyledText = list[tuple[str, str]]
"""Texts, each with a colour of the terminal; empty for its default."""

LEGEND = (
    "Each line is a request to the model. When a request would exceed its budget, the history is compacted (└).",
    "Cacheable: tokens of the common prefix with the request before, which the provider can serve from its cache.",
)
BAR = 20  # columns of the bar
ARGUMENT_WIDTH = 48  # columns of an argument
_EIGHTHS = " ▏▎▍▌▋▊▉"
_INFORMATIVE = ("mark", "path", "file_path", "command", "query", "text", "pattern", "url", "name")


@dataclass(slots=True)
class Request:
    """One list of messages that was returned for a request. Token counts are the provider's, as far as it reports any.

    Attributes:
        number: from 1.
        budget: tokens that the request may have; None if the context does not report a budget.
        trigger: tokens above which the context compacts; None if the context does not report it.
        prefix: tokens of the common prefix with the previous request, which a provider can serve from its cache.
        broken: the provider rules that it breaks, one sentence each.
        calls: tool calls of the answer; None until the answer was added.
    """

    number: int
    tokens: int
    budget: int | None
    trigger: int | None
    prefix: int
    broken: list[str]
    calls: list[Call] | None = None


class ProgressPrinter:
    """Prints the events of a session, as the probe sees them."""

    def __init__(self) -> None:
        self.width = screen_width()
        self._open: Request | None = None  # its line is not printed yet
        self._digits = 0

    def print(self, line: StyledText, indent: int = 0) -> None:
        """Print a line; wrap a long one and indent its further lines by `indent` columns."""
        line = [(printable(text), style) for text, style in line]
        text = "".join(text for text, _ in line)
        if display_width(text) > self.width:
            blanks = " " * indent
            for piece in textwrap.wrap(text, self.width, subsequent_indent=blanks, break_on_hyphens=False):
                click.secho(piece, fg=line[-1][1] or None)
        else:
            click.echo("".join(click.style(text, fg=style or None) for text, style in line).rstrip())

    def on_prompt(self, prompt: str) -> None:
        self.finish()
        self.print([])
        self.print([("user  ", "blue"), (truncate(prompt, self.width - 6), "")])

    def on_answer(self, answer: str) -> None:
        self.finish()
        for place, paragraph in enumerate(answer.strip().splitlines() or [""]):
            self.print([("agent  " if place == 0 else " " * 7, "magenta"), (paragraph, "")], 7)

    def on_request(self, request: Request) -> None:
        self.finish()
        if not self._digits:
            digits = self._digits = max(6, len(f"{request.budget or request.tokens:,}"))
            for text in LEGEND:
                self.print([(text, "")])
            sizes = f"{'tokens':>{digits}} of {'budget':>{digits}}  {'cacheable':>{digits + 5}}"
            heading = f"   #  {'how full':<{BAR}}  {sizes}  tools called"
            self.print([(heading[: self.width], "")])
        self._open = request

    def on_compaction(self, report: Mapping[str, Any]) -> None:
        self.finish()
        self.print(compaction_line(report), 10)

    def note(self, text: str) -> None:
        self.print([("       note  ", "yellow"), (text, "")], 13)

    def finish(self) -> None:
        """Print the line of the newest request."""
        request, self._open = self._open, None
        if request is None:
            return
        digits, share = self._digits, request.prefix / (request.tokens or 1)
        allowed = f"{request.budget:>{digits},}" if request.budget else "?".rjust(digits)
        over = request.budget and request.tokens > request.budget
        near = request.trigger and request.tokens > request.trigger * 0.85
        line: StyledText = [
            (f"{request.number:>4}  ", ""),
            (bar(request.tokens, request.budget or request.tokens), "red" if over else "yellow" if near else "cyan"),
            (f"  {request.tokens:>{digits},} of {allowed}", ""),
            (f"  {request.prefix:>{digits},} {share:>4.0%}  ", "green" if share >= 0.5 else "yellow"),
        ]
        room = max(1, self.width - sum(len(text) for text, _ in line))
        if request.broken:
            line.append((truncate(f"INVALID: {request.broken[0]}", room), "red"))
        else:
            calls = "…" if request.calls is None else calls_text(request.calls) or "(answers)"
            line.append((truncate(calls, room), ""))
        self.print(line)


def compaction_line(report: Mapping[str, Any]) -> StyledText:
    """Return the line of a compaction: tokens before and after, tokens freed by each strategy, lost cached prefix."""
    before, after = int(report.get("before_tokens") or 0), int(report.get("after_tokens") or 0)
    line: StyledText = [(f"      └ compacted {before:,} → {after:,} tokens", "cyan")]
    freed: Counter[str] = Counter()  # a strategy may have run several times
    for step in report.get("strategies") or ():
        freed[step["name"]] += step["freed"]
    if freed:
        line.append((" · freed by " + ", ".join(f"{name} {tokens:,}" for name, tokens in freed.items()), ""))
    if (invalidated := report.get("prefix_given_up_tokens")) is not None:
        line.append((f" · prefix invalidated {invalidated:,}", "yellow"))
    if (took := report.get("duration_ms")) is not None:
        line.append((f" · {took:.0f} ms", ""))
    return line


def calls_text(calls: Iterable[Call]) -> str:
    """Return tool calls, each with its most informative argument: `read_file a.py, b.py · search_files draft`."""
    parts: list[str] = []
    for name, group in groupby(calls, key=lambda call: str(call.name)):
        arguments = [_argument(call.input() or {}) for call in group]
        shown = ", ".join(text for text in arguments if text)
        parts.append(f"{name} {shown}" if shown else f"{name} ×{len(arguments)}" if len(arguments) > 1 else name)
    return " · ".join(parts)


def bar(part: int, whole: int) -> str:
    """Return a bar that is filled to the share of `part` in `whole`."""
    full, rest = divmod(min(BAR * 8, round(BAR * 8 * part / whole)) if whole else 0, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR, "░")


def _argument(given: Mapping[str, Any]) -> str:
    keys = [key for key in (*_INFORMATIVE, *given) if isinstance(given.get(key), str) and given[key].strip()]
    return truncate(str(given[keys[0]]), ARGUMENT_WIDTH) if keys else ""
