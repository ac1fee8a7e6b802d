"""The story of a run as lines: one for each request, one for each compaction.

The line of a request is known in two steps: its size before the provider answers, the tools called afterwards. So the
newest one stands at the bottom of the screen until the next request begins, and only then stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from amplifier_context_core.cli.words import cut
from amplifier_context_core.messages.parsing import Call, arguments_of

from .plan import Plan
from .probe import Request
from .terminal import Line, Terminal

LEGEND = (
    "Each line is a request to the model. When one would outgrow its budget, the memory is compacted (└).",
    "Cacheable: tokens at its beginning that are as in the request before, so the provider has them cached.",
)
BARS = ((100, 20), (70, 10), (0, 6))  # columns of a screen, and of a bar on it
TELLING_WIDTH = 48  # characters of an argument
_EIGHTHS = " ▏▎▍▌▋▊▉"
_TELLING = (
    "path",
    "file_path",
    "command",
    "query",
    "text",
    "pattern",
    "url",
    "name",
)  # arguments worth showing, in order


class Narrator:
    """Tells a terminal what happens; see `watch.Audience`.

    Args:
        terminal: where to tell it.
        terse: answers on one line.
    """

    def __init__(self, terminal: Terminal, *, terse: bool = False) -> None:
        self._terminal = terminal
        self._bar = next(bar for width, bar in BARS if terminal.width >= width)
        self._terse = terse
        self._open: Request | None = None  # its line is not final yet
        self._headed = False
        self._digits = 6
        self._freed = 0
        self._compactions = 0

    def opened(self, plan: Plan) -> None:
        """What is run."""
        self._terminal.say(
            [("amplifier-context run", "bold"), (f" · {plan.title} · memory: ", ""), (plan.context, "bold")]
        )
        for note in plan.notes:
            self._terminal.say([(note, "dim")])

    def asked(self, prompt: str, *, typed: bool = False) -> None:
        """A prompt begins. A typed one is on screen already."""
        self._finish()
        if not typed:
            self._terminal.say([])
            text = cut(prompt, self._terminal.width - 6)
            self._terminal.say([("user  ", "bold blue"), (text, "")], 6)

    def told(self, answer: str) -> None:
        """The loop is done with the prompt."""
        self._finish()
        self._terminal.rest()
        text = cut(answer, self._terminal.width - 7) if self._terse else answer.strip()
        for place, paragraph in enumerate(text.splitlines() or [""]):
            self._terminal.say([("agent  " if place == 0 else " " * 7, "bold magenta"), (paragraph, "")], 7)

    def requested(self, request: Request) -> None:
        """A request is on its way."""
        self._finish()
        self._head(request)
        self._open = request
        self._redraw()

    def answered(self, request: Request) -> None:
        """Its calls are known."""
        self._redraw()

    def compacted(self, report: Mapping[str, Any]) -> None:
        """The next request was too large, and is smaller now."""
        self._finish()
        before, after = _number(report, "before_tokens"), _number(report, "after_tokens")
        self._compactions += 1
        self._freed += before - after
        self._terminal.say(compaction_line(report), 10)

    def noted(self, text: str) -> None:
        """Something a reader should know."""
        self._terminal.say([("       note  ", "yellow"), (text, "")], 13)

    def failed(self) -> None:
        """There will be no answer."""
        self._finish()
        self._terminal.rest()

    def close(self, lines: Iterable[Line], indent: int) -> None:
        """The end, and what came of it."""
        self._finish()
        self._terminal.rest()
        for line in lines:
            self._terminal.say(line, indent)

    # --- the line at the bottom -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The newest request is answered: its line goes from the bottom of the screen to those that stay."""
        if self._open is not None:
            line, self._open = self._row(self._open), None
            self._terminal.show(self._status())
            self._terminal.say(line)

    def _redraw(self) -> None:
        if self._open is not None:
            self._terminal.show(self._row(self._open), self._status())

    def _status(self) -> Line:
        return [(f"      compactions so far: {self._compactions}, tokens saved: {self._freed:,}", "dim")]

    def _head(self, request: Request) -> None:
        """Headings of the columns, once there is something below them."""
        if self._headed:
            return
        self._headed = True
        self._digits = max(6, len(f"{request.budget or request.tokens:,}"))
        digits = self._digits
        for text in LEGEND:
            self._terminal.say([(text, "dim")])
        sizes = f"{'tokens':>{digits}} of {'budget':>{digits}}  {'cacheable':>{digits + 5}}"
        full = "how full" if self._bar >= len("how full") else "full"
        heading = f"   #  {full:<{self._bar}}  {sizes}  "
        self._terminal.say([(heading + cut("tools called", self._terminal.width - len(heading)), "dim")])

    def _row(self, request: Request) -> Line:
        digits = self._digits
        allowed = f"{request.budget:>{digits},}" if request.budget else "?".rjust(digits)
        line: Line = [
            (f"{request.number:>4}  ", "bold"),
            (bar(request.tokens, request.budget or request.tokens, self._bar), _heat(request)),
            (f"  {request.tokens:>{digits},}", ""),
            (f" of {allowed}", "dim"),
            (f"  {request.prefix:>{digits},} {request.share:>4.0%}", "green" if request.share >= 0.5 else "yellow"),
            ("  ", ""),
        ]
        used = sum(len(text) for text, _ in line)
        if request.broken:
            line.append((cut(f"INVALID: {request.broken[0]}", self._terminal.width - used), "bold red"))
        else:
            told = (calls_text(request.calls) or "(answers)") if request.answered else "…"
            line.append((cut(told, self._terminal.width - used), ""))
        return line


def compaction_line(report: Mapping[str, Any]) -> Line:
    """What a compaction did: tokens before and after, who freed how many, what it cost of the cached prefix."""
    before, after = _number(report, "before_tokens"), _number(report, "after_tokens")
    line: Line = [("      └ compacted ", "bold cyan"), (f"{before:,} → {after:,} tokens", "cyan")]
    freed: Counter[str] = Counter()  # a strategy may have had several turns
    for step in report.get("strategies") or ():
        freed[step["name"]] += step["freed"]
    if freed:
        line.append((" · freed by " + ", ".join(f"{name} {tokens:,}" for name, tokens in freed.items()), ""))
    if (given_up := report.get("prefix_given_up_tokens")) is not None:
        line.append((f" · prefix given up {given_up:,}", "yellow"))
    if (took := report.get("duration_ms")) is not None:
        line.append((f" · {took:.0f} ms", "dim"))
    return line


def calls_text(calls: Iterable[Call]) -> str:
    """Tools called, each with its most telling argument: `read_file a.py, b.py · search_files draft`."""
    parts: list[str] = []
    for name, group in groupby(calls, key=lambda call: str(call.name)):
        telling = [_telling(call) for call in group]
        shown = ", ".join(text for text in telling if text)
        parts.append(f"{name} {shown}" if shown else f"{name} ×{len(telling)}" if len(telling) > 1 else name)
    return " · ".join(parts)


def bar(part: int, whole: int, width: int) -> str:
    """A bar of so many columns, filled to the share `part` has of `whole`."""
    eighths = min(width * 8, round(width * 8 * part / whole)) if whole else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "░")


def _heat(request: Request) -> str:
    if request.budget and request.tokens > request.budget:
        return "red"
    return "yellow" if request.trigger and request.tokens > request.trigger * 0.85 else "cyan"


def _telling(call: Call) -> str:
    given = arguments_of(call)
    keys = [key for key in (*_TELLING, *given) if isinstance(given.get(key), str) and given[key].strip()]
    if not keys:
        return ""
    text = str(given[keys[0]])
    if keys[0].endswith("path") and text.count("/") > 1:
        text = "…/" + "/".join(text.split("/")[-2:])  # the end of a path tells most
    return cut(text, TELLING_WIDTH)


def _number(report: Mapping[str, Any], key: str) -> int:
    value = report.get(key)
    return value if isinstance(value, int) else 0
