"""The summary of a run: valid requests, complete history, the effect of compaction, and one recalled message."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from amplifier_context_cli.formatting import counted, truncate
from amplifier_context_core.messages.parsing import text_of

from ..checks.message_shapes import as_mapping
from .probe import ContextProbe, HistoryCheck, Message, approx_tokens
from .progress import StyledText

SHOWN_LINES = 3  # lines of a recalled original
SHOWN_FAULTS = 5
INDENT = 16  # columns before the text of a row, including its name


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        explained: what `context.explain` returns; empty for a context without it.
        history_tokens: tokens of a request with the whole history; the provider's count as far as known.
        recalled: one folded message: the marks of its round with the verb, its mark, the line that the model sees
            instead, and the original's text; None if nothing was folded or the context has no `context.recall`.
        stopped: True if the user ended the run early.
    """

    probe: ContextProbe
    invalid: list[str]
    history: HistoryCheck
    explained: Mapping[str, Any]
    history_tokens: int
    recalled: tuple[str, str, str, str] | None
    stopped: bool

    @property
    def ok(self) -> bool:
        """True if every request was valid and the history is complete."""
        return not self.invalid and self.history.complete


async def evaluate(probe: ContextProbe, coordinator: Any, *, stopped: bool = False) -> Outcome:
    """Return the result of a session that has run its prompts and is still open."""
    providers: Mapping[str, Any] = coordinator.get("providers") or {}
    # provider-replay checks the request as the loop sends it; a sentence that both report is kept once.
    reported = [str(sentence) for one in providers.values() for sentence in getattr(one, "violations", ())]
    explain = coordinator.get_capability("context.explain")
    explained: dict[str, Any] = await explain() if explain is not None else {}
    return Outcome(
        probe,
        list(dict.fromkeys([*probe.invalid, *reported])),
        await probe.check_history(),
        explained,
        explained.get("history_tokens") or approx_tokens(await coordinator.get("context").get_messages()),
        await _recalled(probe.view, coordinator, explained),
        stopped,
    )


def summary(outcome: Outcome, width: int) -> list[StyledText]:
    """Return the last lines of a run for a screen of `width` columns."""
    probe, history = outcome.probe, outcome.history
    lines: list[StyledText] = [[], [(f"Summary  after {time.monotonic() - probe.started:.1f} s", "")]]
    over = f"; {probe.over} above the budget, because the protected messages alone exceed it" if probe.over else ""
    if outcome.invalid:
        broken = counted(len(outcome.invalid), "provider rule")
        lines.append(_fact("requests", f"{probe.requests:,}; {broken} broken{over}", "red"))
        lines += [_fact("", sentence, "red") for sentence in outcome.invalid[:SHOWN_FAULTS]]
    else:
        text = f"{probe.requests:,}, all valid by the rules of OpenAI, Anthropic and the kernel{over}"
        lines.append(_fact("requests", text, "yellow" if over else "green"))
    if history.complete:
        text = f"{history.kept:,} messages, complete: every added message is kept unchanged"
        lines.append(_fact("history", f"{text}, sha256 {history.sha256[:12]}", "green"))
    else:
        text = f"NOT COMPLETE: {history.added:,} messages were added, {history.kept:,} are kept"
        lines.append(_fact("history", f"{text}; the first difference is at index {history.first_difference}", "red"))
    freed = sum(int(one.get("before_tokens", 0)) - int(one.get("after_tokens", 0)) for one in probe.compactions)
    if probe.compactions:
        text = (
            f"{len(probe.compactions)}, {freed:,} tokens saved; a request with the whole history would have about "
            f"{outcome.history_tokens:,}, the largest request had {probe.largest:,}"
        )
    else:
        text = f"none of {outcome.history_tokens:,} tokens; a smaller --budget causes some"
    lines.append(_fact("compactions", text))
    if probe.sent:
        text = f"{probe.cached / probe.sent:.0%} of the {probe.sent:,} sent tokens could come from the provider's cache"
        lines.append(_fact("prompt cache", text))
    if (summaries := outcome.explained.get("summary")) is not None:
        session, cost = float(summaries.get("session_cost") or 0), float(summaries.get("summary_cost") or 0)
        share = f", {cost / session:.0%} of what the session's input cost" if session else ""
        reason = f"; the last attempt: {summaries['reason']}" if summaries.get("reason") else ""
        lines.append(_fact("summaries", f"{counted(int(summaries.get('calls') or 0), 'call')}{share}{reason}"))
    if written := _written_lines(probe.view):
        lines.append(_fact("", "the newest chapter begins with the words of the writer:"))
        lines += [_quote(line, width) for line in written[:SHOWN_LINES]]
    if outcome.recalled is not None:
        folded, mark, line, original = outcome.recalled
        lines += [_fact("recall", f"{folded} folded; the model now sees this line instead:"), _quote(line, width)]
        lines.append(_fact("", f"context.recall({mark!r}) returns the original, {len(original):,} characters:"))
        lines += [_quote(one, width) for one in [one for one in original.splitlines() if one.strip()][:SHOWN_LINES]]
    if outcome.stopped:
        lines.append(_fact("stopped", "by you, before the last prompt", "yellow"))
    return lines


def _fact(name: str, text: str, style: str = "") -> StyledText:
    return [(f"  {name:<{INDENT - 2}}", ""), (text, style)]


def _quote(line: str, width: int) -> StyledText:
    return _fact("", f"  {truncate(line, width - INDENT - 4)}", "cyan")


async def _recalled(
    view: Sequence[Message], coordinator: Any, explained: Mapping[str, Any]
) -> tuple[str, str, str, str] | None:
    recall = coordinator.get_capability("context.recall")
    if not explained or recall is None:
        return None
    lines = {found[1]: line for lines in _chapters(view) for line in lines if (found := re.match(r"(m\d+) ", line))}
    folded = [row for row in explained["rounds"] if row["state"] == "folded" and row["mark"] in lines]
    # In a round with one result it is unambiguous which line represents it.
    for row in sorted(folded, key=lambda row: (_results(row) == 1, row["tokens_before"]), reverse=True):
        # The mark of a round is its call; the result is longer, so it is tried first.
        for mark in (row["to"], row["mark"]):
            original = text_of((as_mapping(await recall(mark)) or {}).get("content"))
            if original.strip():
                which = f"{mark} was" if row["to"] == row["mark"] else f"{row['mark']} to {row['to']} were"
                return which, mark, lines[row["mark"]], original
    return None


def _results(row: Mapping[str, Any]) -> int:
    return int(row["to"][1:]) - int(row["mark"][1:])


def _chapters(view: Sequence[Message]) -> Iterator[list[str]]:
    for message in view:
        if (as_mapping(message.get("metadata")) or {}).get("source") == "context-compaction":
            yield text_of(message.get("content")).splitlines()


def _written_lines(view: Sequence[Message]) -> list[str]:
    """Return the lines that a model wrote in the newest chapter that has some: those before the digest's entries."""
    for lines in reversed(list(_chapters(view))):
        head = next((place for place, line in enumerate(lines) if line.endswith("in a model's words:")), None)
        if head is not None:
            return list(takewhile(lambda line: not re.match(r"m\d+ |</", line), lines[head + 1 :]))
    return []
