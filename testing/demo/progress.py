"""The progress of a run as lines: one for each request, one for each compaction.

The line of a request is complete in two steps: the size is known before the provider answers, the tool calls
afterwards. So the newest line is live, at the bottom of the screen, and is printed when the next request begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from amplifier_context_cli.formatting import truncate
from amplifier_context_core.messages.parsing import Call, arguments_of

from .plan import Plan
from .probe import Request
from .terminal import StyledText, Terminal

LEGEND = (
    "Each line is a request to the model. When a request would exceed its budget, the history is compacted (└).",
    "Cacheable: tokens of the common prefix with the request before, which the provider can serve from its cache.",
)
BARS = ((100, 20), (70, 10), (0, 6))  # minimal columns of the screen, columns of the bar
ARGUMENT_WIDTH = 48  # columns of an argument
_EIGHTHS = " ▏▎▍▌▋▊▉"
_INFORMATIVE = (
    "mark",
    "path",
    "file_path",
    "command",
    "query",
    "text",
    "pattern",
    "url",
    "name",
)  # arguments to show, the most informative first


class ProgressPrinter:
    """Prints the events of a session to a terminal; a `probe.Observer`.

    Args:
        terminal: to print to.
        terse: print each answer on one line.
    """

    def __init__(self, terminal: Terminal, *, terse: bool = False) -> None:
        self._terminal = terminal
        self._bar = next(bar for width, bar in BARS if terminal.width >= width)
        self._terse = terse
        self._open: Request | None = None  # its line is still live
        self._headed = False
        self._digits = 6
        self._freed = 0
        self._compactions = 0

    def on_start(self, plan: Plan, origin: str) -> None:
        """Print the title of the run, with what the context module is loaded from."""
        title: StyledText = [("amplifier-context run", "bold"), (f" · {plan.title} · memory: ", "")]
        self._terminal.print([*title, (plan.context, "bold"), (f" ({origin})" if origin else "", "")])
        for note in plan.notes:
            self._terminal.print([(note, "dim")])

    def on_prompt(self, prompt: str, *, typed: bool = False) -> None:
        """Print a prompt, unless the user typed it: then it is on the screen already."""
        self._finish()
        if not typed:
            self._terminal.print([])
            text = truncate(prompt, self._terminal.width - 6)
            self._terminal.print([("user  ", "bold blue"), (text, "")], 6)

    def on_answer(self, answer: str) -> None:
        """Print the answer to a prompt."""
        self._finish()
        self._terminal.stop_live()
        text = truncate(answer, self._terminal.width - 7) if self._terse else answer.strip()
        for place, paragraph in enumerate(text.splitlines() or [""]):
            self._terminal.print([("agent  " if place == 0 else " " * 7, "bold magenta"), (paragraph, "")], 7)

    def on_request(self, request: Request) -> None:
        """Show the line of a new request."""
        self._finish()
        self._head(request)
        self._open = request
        self._redraw()

    def on_response(self, request: Request) -> None:
        """Add the tool calls to the line of the newest request."""
        self._redraw()

    def on_compaction(self, report: Mapping[str, Any]) -> None:
        """Print a compaction."""
        self._finish()
        before, after = _number(report, "before_tokens"), _number(report, "after_tokens")
        self._compactions += 1
        self._freed += before - after
        self._terminal.print(compaction_line(report), 10)

    def note(self, text: str) -> None:
        """Print a note."""
        self._terminal.print([("       note  ", "yellow"), (text, "")], 13)

    def on_failure(self) -> None:
        """End the live lines; the prompt has no answer."""
        self._finish()
        self._terminal.stop_live()

    def close(self, lines: Iterable[StyledText], indent: int) -> None:
        """End the live lines and print the last lines of the run."""
        self._finish()
        self._terminal.stop_live()
        for line in lines:
            self._terminal.print(line, indent)

    # --- the live lines ---------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Print the line of the newest request, which is complete."""
        if self._open is not None:
            line, self._open = self._row(self._open), None
            self._terminal.update(self._status())
            self._terminal.print(line)

    def _redraw(self) -> None:
        if self._open is not None:
            self._terminal.update(self._row(self._open), self._status())

    def _status(self) -> StyledText:
        return [(f"      compactions so far: {self._compactions}, tokens saved: {self._freed:,}", "dim")]

    def _head(self, request: Request) -> None:
        """Print the headings of the columns before the first request."""
        if self._headed:
            return
        self._headed = True
        self._digits = max(6, len(f"{request.budget or request.tokens:,}"))
        digits = self._digits
        for text in LEGEND:
            self._terminal.print([(text, "dim")])
        sizes = f"{'tokens':>{digits}} of {'budget':>{digits}}  {'cacheable':>{digits + 5}}"
        full = "how full" if self._bar >= len("how full") else "full"
        heading = f"   #  {full:<{self._bar}}  {sizes}  "
        self._terminal.print([(heading + truncate("tools called", self._terminal.width - len(heading)), "dim")])

    def _row(self, request: Request) -> StyledText:
        digits = self._digits
        allowed = f"{request.budget:>{digits},}" if request.budget else "?".rjust(digits)
        line: StyledText = [
            (f"{request.number:>4}  ", "bold"),
            (bar(request.tokens, request.budget or request.tokens, self._bar), _heat(request)),
            (f"  {request.tokens:>{digits},}", ""),
            (f" of {allowed}", "dim"),
            (f"  {request.prefix:>{digits},} {request.share:>4.0%}", "green" if request.share >= 0.5 else "yellow"),
            ("  ", ""),
        ]
        used = sum(len(text) for text, _ in line)
        if request.broken:
            line.append((truncate(f"INVALID: {request.broken[0]}", self._terminal.width - used), "bold red"))
        else:
            calls = (calls_text(request.calls) or "(answers)") if request.answered else "…"
            line.append((truncate(calls, self._terminal.width - used), ""))
        return line


def compaction_line(report: Mapping[str, Any]) -> StyledText:
    """Return the line of a compaction: tokens before and after, tokens freed by each strategy, lost cached prefix."""
    before, after = _number(report, "before_tokens"), _number(report, "after_tokens")
    line: StyledText = [("      └ compacted ", "bold cyan"), (f"{before:,} → {after:,} tokens", "cyan")]
    freed: Counter[str] = Counter()  # a strategy may have run several times
    for step in report.get("strategies") or ():
        freed[step["name"]] += step["freed"]
    if freed:
        line.append((" · freed by " + ", ".join(f"{name} {tokens:,}" for name, tokens in freed.items()), ""))
    if (invalidated := report.get("prefix_given_up_tokens")) is not None:
        line.append((f" · prefix invalidated {invalidated:,}", "yellow"))
    if (took := report.get("duration_ms")) is not None:
        line.append((f" · {took:.0f} ms", "dim"))
    return line


def calls_text(calls: Iterable[Call]) -> str:
    """Return tool calls, each with its most informative argument: `read_file a.py, b.py · search_files draft`."""
    parts: list[str] = []
    for name, group in groupby(calls, key=lambda call: str(call.name)):
        arguments = [_argument(call) for call in group]
        shown = ", ".join(text for text in arguments if text)
        parts.append(f"{name} {shown}" if shown else f"{name} ×{len(arguments)}" if len(arguments) > 1 else name)
    return " · ".join(parts)


def bar(part: int, whole: int, width: int) -> str:
    """Return a bar of `width` columns, filled to the share of `part` in `whole`."""
    eighths = min(width * 8, round(width * 8 * part / whole)) if whole else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "░")


def _heat(request: Request) -> str:
    if request.budget and request.tokens > request.budget:
        return "red"
    return "yellow" if request.trigger and request.tokens > request.trigger * 0.85 else "cyan"


def _argument(call: Call) -> str:
    given = arguments_of(call)
    keys = [key for key in (*_INFORMATIVE, *given) if isinstance(given.get(key), str) and given[key].strip()]
    if not keys:
        return ""
    text = str(given[keys[0]])
    if keys[0].endswith("path") and text.count("/") > 1:
        text = "…/" + "/".join(text.split("/")[-2:])  # the end of a path is the most informative
    return truncate(text, ARGUMENT_WIDTH)


def _number(report: Mapping[str, Any], key: str) -> int:
    value = report.get(key)
    return value if isinstance(value, int) else 0
