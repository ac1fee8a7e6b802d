"""The end of a run: was every request valid, is the history whole, what did compacting gain, can it be undone?"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from amplifier_context_core.cli.words import counted, cut
from amplifier_context_core.messages.parsing import text_of

from .probe import Message, Proof, Watch, weigh
from .terminal import Line

SHOWN_LINES = 3  # of an original that is read back
SHOWN_FAULTS = 5
INDENT = 16  # columns of what is said, after its name


@dataclass(frozen=True, slots=True)
class ReadBack:
    """One message that was folded away, and its original.

    Attributes:
        folded: the round it belongs to, and the verb for it.
        mark: names it.
        line: what the model sees in its place.
        original: the message as `context.recall` returns it.
    """

    folded: str
    mark: str
    line: str
    original: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        watch: everything that was seen.
        invalid: provider rules broken, a sentence each.
        proof: of the history.
        history_tokens: what the whole history would have in a request, in the provider's tokens as far as known.
        clipped: rounds whose large outputs the last view shows in part: mark, tokens before and after.
        tables: how many rounds have outputs in JSON that it shows as tables.
        read_back: one folded message; None when nothing was folded, or the context cannot recall.
        seconds: how long the run took.
        stopped: the user ended it before its time.
    """

    watch: Watch
    invalid: list[str]
    proof: Proof
    history_tokens: int
    clipped: list[tuple[str, int, int]]
    tables: int
    read_back: ReadBack | None
    seconds: float
    stopped: bool

    @property
    def good(self) -> bool:
        """Every request valid, history complete."""
        return not self.invalid and self.proof.complete


async def judge(watch: Watch, coordinator: Any, *, stopped: bool = False) -> Outcome:
    """Look at a session that has done its work, before it is closed."""
    providers: Mapping[str, Any] = coordinator.get("providers") or {}
    # provider-replay checks too, what the loop made of the list; one sentence of both is enough.
    told = [str(sentence) for one in providers.values() for sentence in getattr(one, "violations", ())]
    history = await coordinator.get("context").get_messages()
    explain = coordinator.get_capability("context.explain")
    explained: dict[str, Any] = await explain() if explain is not None else {}
    rounds = cast("list[dict[str, Any]]", explained.get("rounds") or [])
    return Outcome(
        watch,
        list(dict.fromkeys([*watch.invalid, *told])),
        await watch.prove(),
        explained.get("history_tokens") or weigh(history),
        [(row["mark"], row["tokens_before"], row["tokens_after"]) for row in rounds if "is clipped" in row["rule"]],
        sum("as a table" in row["rule"] for row in rounds),
        await _read_back(watch.view, coordinator, explained),
        time.monotonic() - watch.started,
        stopped,
    )


def summary(outcome: Outcome, width: int) -> list[Line]:
    """The last lines of the screen, which is so many columns wide."""
    watch, proof = outcome.watch, outcome.proof
    lines: list[Line] = [[], [("Summary", "bold"), (f"  after {outcome.seconds:.1f} s", "dim")]]
    lines += _requests(outcome)
    if proof.complete:
        said = f"{proof.kept:,} messages, complete: what went in is what is kept, sha256 {proof.sha256[:12]}"
        lines.append(_fact("history", said, "green"))
    else:
        said = (
            f"NOT COMPLETE: {proof.added:,} messages went in, {proof.kept:,} are kept; "
            f"message {proof.first_difference} is the first that differs (counted from 0)"
        )
        lines.append(_fact("history", said, "bold red"))
    freed = sum(
        int(report.get("before_tokens", 0)) - int(report.get("after_tokens", 0)) for report in watch.compactions
    )
    if watch.compactions:
        said = (
            f"{len(watch.compactions)}, {freed:,} tokens saved; the whole history would have about "
            f"{outcome.history_tokens:,}, the largest request had {watch.largest:,}"
        )
    else:
        said = f"none: {_without_compaction(outcome)}; a smaller --budget shows some"
    lines.append(_fact("compactions", said))
    if watch.sent:
        said = f"{watch.cached / watch.sent:.0%} of all {watch.sent:,} tokens sent could come from the provider's cache"
        lines.append(_fact("prompt cache", said))
    if outcome.read_back is not None:
        lines += _quoted(outcome.read_back, width - INDENT - 2)
    if outcome.stopped:
        lines.append(_fact("stopped", "by you, before the end", "yellow"))
    return lines


def _without_compaction(outcome: Outcome) -> str:
    """Return how the history fitted: as it is, or with large tool outputs shown in part."""
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
    return "; ".join(parts) or f"all {outcome.history_tokens:,} tokens fitted"


def _requests(outcome: Outcome) -> list[Line]:
    watch = outcome.watch
    over = f"; {watch.over} above the budget, because what must be kept is larger" if watch.over else ""
    if not outcome.invalid:
        what = f"{watch.requests:,}, all valid by the rules of OpenAI, Anthropic and the kernel{over}"
        return [_fact("requests", what, "green" if not over else "yellow")]
    broken = counted(len(outcome.invalid), "provider rule")
    lines = [_fact("requests", f"{watch.requests:,}; {broken} broken{over}", "bold red")]
    lines += [_fact("", sentence, "red") for sentence in outcome.invalid[:SHOWN_FAULTS]]
    if (more := len(outcome.invalid) - SHOWN_FAULTS) > 0:
        lines.append(_fact("", f"... and {more} more", "red"))
    return lines


def _quoted(found: ReadBack, width: int) -> list[Line]:
    text = text_of(found.original.get("content"))
    shown = [line for line in text.splitlines() if line.strip()][:SHOWN_LINES]
    return [
        _fact("read back", f"{found.folded} folded away; the model now sees this line in that place:"),
        _fact("", f"  {cut(found.line, width)}", "cyan"),
        _fact("", f"nothing is lost: context.recall({found.mark!r}) gives the original, {len(text):,} characters:"),
        *(_fact("", f"  {cut(line, width)}", "cyan") for line in shown),
    ]


def _fact(name: str, said: str, style: str = "") -> Line:
    return [(f"  {name:<{INDENT - 2}}", "dim"), (said, style)]


# --- reading back -----------------------------------------------------------------------------------------------------


async def _read_back(view: Sequence[Message], coordinator: Any, explained: Mapping[str, Any]) -> ReadBack | None:
    """The folded message with most to lose: the longest round a line of a chapter stands for."""
    recall = coordinator.get_capability("context.recall")
    if not explained or recall is None:
        return None
    rounds = cast("list[dict[str, Any]]", explained["rounds"])
    lines = _chapter_lines(view)
    folded = [row for row in rounds if row["state"] == "folded" and row["mark"] in lines]
    # Of a round with one result it is plain which line stands for what.
    for row in sorted(folded, key=lambda row: (_results(row) == 1, row["tokens_before"]), reverse=True):
        # A round is named by its call; what is worth reading back is what the tool returned.
        for mark in (row["to"], row["mark"]):
            original = await recall(mark)
            if original is not None and text_of(original.get("content")).strip():
                folded = f"{mark} was" if row["to"] == row["mark"] else f"{row['mark']} to {row['to']} were"
                return ReadBack(folded, mark, lines[row["mark"]], original)
    return None


def _results(row: Mapping[str, Any]) -> int:
    return int(row["to"][1:]) - int(row["mark"][1:])


def _chapter_lines(view: Sequence[Message]) -> dict[str, str]:
    """The lines of the chapters in a view by the mark they begin with; of several the last, which tells of a result."""
    lines: dict[str, str] = {}
    for message in view:
        metadata: Any = message.get("metadata")
        if isinstance(metadata, dict) and cast("dict[str, Any]", metadata).get("source") == "context-compaction":
            for line in text_of(message.get("content")).splitlines():
                if found := re.match(r"(m\d+) ", line):
                    lines[found[1]] = line
    return lines
