"""The summary of a run: valid requests, complete history, the effect of compaction, and one recalled message."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, cast

from amplifier_context_cli.formatting import counted, truncate
from amplifier_context_core.messages.parsing import text_of

from .probe import ContextProbe, HistoryCheck, Message, approx_tokens
from .terminal import StyledText

SHOWN_LINES = 3  # lines of a recalled original
SHOWN_FAULTS = 5
INDENT = 16  # columns before the text of a row, including its name


@dataclass(frozen=True, slots=True)
class RecallExample:
    """One folded message and its original.

    Attributes:
        folded: the marks of its round, with the verb.
        mark: the mark of the message.
        line: the line that the model sees in its place.
        original: the message that `context.recall` returns.
    """

    folded: str
    mark: str
    line: str
    original: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        probe: the recorded session.
        invalid: the broken provider rules, one sentence each.
        history_check: the comparison of the added messages with the history.
        history_tokens: tokens of a request with the whole history; the provider's count as far as known.
        clipped: rounds whose large outputs the last view truncates: mark, tokens before and after.
        tables: number of rounds whose outputs in JSON the last view shows as tables.
        recall_example: one folded message; None if nothing was folded or the context has no `context.recall`.
        summaries: what became of summaries by a model, from `context.explain`; None of a context without them.
        written: lines that a model wrote in the newest chapter that has some.
        service: what the service on loopback saw; empty without one.
        seconds: duration of the run.
        stopped: True if the user ended the run early.
    """

    probe: ContextProbe
    invalid: list[str]
    history_check: HistoryCheck
    history_tokens: int
    clipped: list[tuple[str, int, int]]
    tables: int
    recall_example: RecallExample | None
    summaries: Mapping[str, Any] | None
    written: list[str]
    service: str
    seconds: float
    stopped: bool

    @property
    def ok(self) -> bool:
        """True if every request was valid and the history is complete."""
        return not self.invalid and self.history_check.complete


async def evaluate(probe: ContextProbe, coordinator: Any, *, stopped: bool = False, service: str = "") -> Outcome:
    """Return the result of a session that has run its prompts and is still open.

    Args:
        probe: the recorded session.
        coordinator: of the session.
        stopped: the user ended the run early.
        service: what the service on loopback saw.
    """
    providers: Mapping[str, Any] = coordinator.get("providers") or {}
    # provider-replay checks the request as the loop sends it; a sentence that both report is kept once.
    reported = [str(sentence) for one in providers.values() for sentence in getattr(one, "violations", ())]
    history = await coordinator.get("context").get_messages()
    explain = coordinator.get_capability("context.explain")
    explained: dict[str, Any] = await explain() if explain is not None else {}
    rounds = cast("list[dict[str, Any]]", explained.get("rounds") or [])
    return Outcome(
        probe,
        list(dict.fromkeys([*probe.invalid, *reported])),
        await probe.check_history(),
        explained.get("history_tokens") or approx_tokens(history),
        [(row["mark"], row["tokens_before"], row["tokens_after"]) for row in rounds if _is_cut(row["rule"])],
        sum("as a table" in row["rule"] for row in rounds),
        await _recall_example(probe.view, coordinator, explained),
        explained.get("summary"),
        _written_lines(probe.view),
        service,
        time.monotonic() - probe.started,
        stopped,
    )


def summary(outcome: Outcome, width: int) -> list[StyledText]:
    """Return the last lines of a run for a screen of `width` columns."""
    probe, check = outcome.probe, outcome.history_check
    lines: list[StyledText] = [[], [("Summary", "bold"), (f"  after {outcome.seconds:.1f} s", "dim")]]
    lines += _requests(outcome)
    if check.complete:
        text = f"{check.kept:,} messages, complete: every added message is kept unchanged, sha256 {check.sha256[:12]}"
        lines.append(_fact("history", text, "green"))
    else:
        text = (
            f"NOT COMPLETE: {check.added:,} messages were added, {check.kept:,} are kept; "
            f"the first difference is at index {check.first_difference}"
        )
        lines.append(_fact("history", text, "bold red"))
    freed = sum(
        int(report.get("before_tokens", 0)) - int(report.get("after_tokens", 0)) for report in probe.compactions
    )
    if probe.compactions:
        text = (
            f"{len(probe.compactions)}, {freed:,} tokens saved; a request with the whole history would have about "
            f"{outcome.history_tokens:,}, the largest request had {probe.largest:,}"
        )
    else:
        text = f"none: {_without_compaction(outcome)}; a smaller --budget causes some"
    lines.append(_fact("compactions", text))
    if probe.sent:
        text = f"{probe.cached / probe.sent:.0%} of the {probe.sent:,} sent tokens could come from the provider's cache"
        lines.append(_fact("prompt cache", text))
    if outcome.summaries is not None:
        lines.append(_fact("summaries", _summarised(outcome.summaries)))
    if outcome.written:
        lines.append(_fact("", "the newest chapter begins with the words of the writer:"))
        lines += [
            _fact("", f"  {truncate(line, width - INDENT - 4)}", "cyan") for line in outcome.written[:SHOWN_LINES]
        ]
    if outcome.service:
        lines.append(_fact("service", outcome.service))
    if outcome.recall_example is not None:
        lines += _quoted(outcome.recall_example, width - INDENT - 2)
    if outcome.stopped:
        lines.append(_fact("stopped", "by you, before the last prompt", "yellow"))
    return lines


def _summarised(report: Mapping[str, Any]) -> str:
    """Return what summaries cost, and why there is not one more."""
    session, cost = float(report.get("session_cost") or 0), float(report.get("summary_cost") or 0)
    share = f", {cost / session:.0%} of what the session's input cost" if session else ""
    reason = f"; the last attempt: {report['reason']}" if report.get("reason") else ""
    return f"{counted(int(report.get('calls') or 0), 'call')}{share}{reason}"


def _without_compaction(outcome: Outcome) -> str:
    """Return how the history fits the budget: in full, or with large tool outputs truncated."""
    parts: list[str] = []
    if outcome.clipped:
        left_out = sum(before - after for _, before, after in outcome.clipped)
        largest = sorted(outcome.clipped, key=lambda row: row[2] - row[1])[:SHOWN_LINES]
        sizes = ", ".join(f"{mark} {before:,} → {after:,}" for mark, before, after in largest)
        parts.append(
            f"large tool outputs of {counted(len(outcome.clipped), 'round')} are clipped, "
            f"{left_out:,} of {outcome.history_tokens:,} tokens are left out ({sizes})"
        )
    if outcome.tables:
        parts.append(f"outputs in JSON of {counted(outcome.tables, 'round')} are shown as tables")
    return "; ".join(parts) or f"all {outcome.history_tokens:,} tokens fit"


def _requests(outcome: Outcome) -> list[StyledText]:
    probe = outcome.probe
    over = f"; {probe.over} above the budget, because the protected messages alone exceed it" if probe.over else ""
    if not outcome.invalid:
        what = f"{probe.requests:,}, all valid by the rules of OpenAI, Anthropic and the kernel{over}"
        return [_fact("requests", what, "green" if not over else "yellow")]
    broken = counted(len(outcome.invalid), "provider rule")
    lines = [_fact("requests", f"{probe.requests:,}; {broken} broken{over}", "bold red")]
    lines += [_fact("", sentence, "red") for sentence in outcome.invalid[:SHOWN_FAULTS]]
    if (more := len(outcome.invalid) - SHOWN_FAULTS) > 0:
        lines.append(_fact("", f"... and {more} more", "red"))
    return lines


def _quoted(found: RecallExample, width: int) -> list[StyledText]:
    text = text_of(found.original.get("content"))
    shown = [line for line in text.splitlines() if line.strip()][:SHOWN_LINES]
    return [
        _fact("recall", f"{found.folded} folded; the model now sees this line instead:"),
        _fact("", f"  {truncate(found.line, width)}", "cyan"),
        _fact("", f"context.recall({found.mark!r}) returns the original, {len(text):,} characters:"),
        *(_fact("", f"  {truncate(line, width)}", "cyan") for line in shown),
    ]


def _fact(name: str, text: str, style: str = "") -> StyledText:
    return [(f"  {name:<{INDENT - 2}}", "dim"), (text, style)]


# --- a recalled message -----------------------------------------------------------------------------------------------


async def _recall_example(
    view: Sequence[Message], coordinator: Any, explained: Mapping[str, Any]
) -> RecallExample | None:
    """Return the folded message with the largest original: from the longest round that one chapter line represents."""
    recall = coordinator.get_capability("context.recall")
    if not explained or recall is None:
        return None
    rounds = cast("list[dict[str, Any]]", explained["rounds"])
    lines = _chapter_lines(view)
    folded = [row for row in rounds if row["state"] == "folded" and row["mark"] in lines]
    # In a round with one result it is unambiguous which line represents it.
    for row in sorted(folded, key=lambda row: (_results(row) == 1, row["tokens_before"]), reverse=True):
        # The mark of a round is its call; the result is longer, so it is tried first.
        for mark in (row["to"], row["mark"]):
            original = await recall(mark)
            if original is not None and text_of(original.get("content")).strip():
                folded = f"{mark} was" if row["to"] == row["mark"] else f"{row['mark']} to {row['to']} were"
                return RecallExample(folded, mark, lines[row["mark"]], original)
    return None


def _results(row: Mapping[str, Any]) -> int:
    return int(row["to"][1:]) - int(row["mark"][1:])


def _chapters(view: Sequence[Message]) -> Iterator[list[str]]:
    """Yield the lines of each chapter of a view."""
    for message in view:
        metadata: Any = message.get("metadata")
        if isinstance(metadata, dict) and cast("dict[str, Any]", metadata).get("source") == "context-compaction":
            yield text_of(message.get("content")).splitlines()


def _chapter_lines(view: Sequence[Message]) -> dict[str, str]:
    """Return the chapter lines of a view by their first mark; the last one of a mark, which shows a result."""
    lines: dict[str, str] = {}
    for line in chain.from_iterable(_chapters(view)):
        if found := re.match(r"(m\d+) ", line):
            lines[found[1]] = line
    return lines


def _written_lines(view: Sequence[Message]) -> list[str]:
    """Return the lines that a model wrote in the newest chapter that has some: those before the digest's entries."""
    for lines in reversed(list(_chapters(view))):
        head = next((place for place, line in enumerate(lines) if line.endswith("in a model's words:")), None)
        if head is not None:
            return list(takewhile(lambda line: not re.match(r"m\d+ |</", line), lines[head + 1 :]))
    return []


def _is_cut(rule: str) -> bool:
    """True if `explain` says that a large output of a round is not shown whole."""
    return "is clipped" in rule or "is described" in rule
