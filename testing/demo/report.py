"""The summary of a run: valid requests, complete history, the effect of compaction, and one recalled message."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any

from amplifier_context_cli.formatting import counted, truncate

from ..checks.message_shapes import as_mapping, text_of
from .probe import ContextProbe, approx_tokens
from .progress import StyledText

SHOWN_LINES = 3  # lines of a recalled original
SHOWN_FAULTS = 5
INDENT = 16  # columns before the text of a row, including its name


async def evaluate(probe: ContextProbe, width: int) -> tuple[bool, list[StyledText]]:
    """Return the result of a session that has run its prompts and is still open, for a screen of `width` columns.

    Returns:
        True if every request was valid and the history is complete, and the lines that say so.
    """
    coordinator, requests = probe.coordinator, probe.requests
    explain = coordinator.get_capability("context.explain")
    explained: dict[str, Any] = await explain() if explain is not None else {}
    lines: list[StyledText] = [[], [(f"Summary  after {time.monotonic() - probe.started:.1f} s", "")]]
    # provider-replay checks the request as the loop sends it; a sentence that both report is kept once.
    providers: Mapping[str, Any] = coordinator.get("providers") or {}
    invalid = [f"request {request.number}: {sentence}" for request in requests for sentence in request.broken]
    invalid += [str(sentence) for one in providers.values() for sentence in getattr(one, "violations", ())]
    invalid = list(dict.fromkeys(invalid))
    too_large = sum(request.budget is not None and request.tokens > request.budget for request in requests)
    over = f"; {too_large} above the budget, because the protected messages alone exceed it" if too_large else ""
    if invalid:
        lines.append(
            _fact("requests", f"{len(requests):,}; {counted(len(invalid), 'provider rule')} broken{over}", "red")
        )
        lines += [_fact("", sentence, "red") for sentence in invalid[:SHOWN_FAULTS]]
    else:
        text = f"{len(requests):,}, all valid by the rules of OpenAI, Anthropic and the kernel{over}"
        lines.append(_fact("requests", text, "yellow" if over else "green"))
    added, kept = probe.added, await probe.kept()
    if added == kept:
        digest = hashlib.sha256(b"".join(added)).hexdigest()[:12]
        text = f"{len(kept):,} messages, complete: every added message is kept unchanged, sha256 {digest}"
        lines.append(_fact("history", text, "green"))
    else:
        text = f"NOT COMPLETE: {len(added):,} messages were added, {len(kept):,} are kept"
        at = next((i for i, (mine, theirs) in enumerate(zip(added, kept, strict=False)) if mine != theirs), None)
        at = min(len(added), len(kept)) if at is None else at
        lines.append(_fact("history", f"{text}; the first difference is at index {at}", "red"))
    whole = explained.get("history_tokens") or approx_tokens(await probe.inner.get_messages())
    if probe.compactions:
        saved = sum(int(one.get("before_tokens", 0)) - int(one.get("after_tokens", 0)) for one in probe.compactions)
        text = (
            f"{len(probe.compactions)}, {saved:,} tokens saved; a request with the whole history would have about "
            f"{whole:,}, the largest request had {max(request.tokens for request in requests):,}"
        )
    else:
        text = f"none of {whole:,} tokens; a smaller --budget causes some"
    lines.append(_fact("compactions", text))
    if sent := sum(request.tokens for request in requests):
        share = sum(request.prefix for request in requests) / sent
        text = f"{share:.0%} of the {sent:,} sent tokens could come from the provider's cache"
        lines.append(_fact("prompt cache", text))
    if summaries := explained.get("summary"):
        reason = f"; the last attempt: {summaries['reason']}" if summaries.get("reason") else ""
        lines.append(_fact("summaries", f"{counted(int(summaries.get('calls') or 0), 'call')}{reason}"))
    if explained:
        lines += await _recalled(probe, explained, width)
    return not invalid and added == kept, lines


def _fact(name: str, text: str, style: str = "") -> StyledText:
    return [(f"  {name:<{INDENT - 2}}", ""), (text, style)]


async def _recalled(probe: ContextProbe, explained: Mapping[str, Any], width: int) -> list[StyledText]:
    """Return the lines about one folded round: what the model sees of it, and what the recall of its result returns."""
    recall = probe.coordinator.get_capability("context.recall")
    chapters = [
        text_of(message.get("content"))
        for message in probe.view
        if (as_mapping(message.get("metadata")) or {}).get("source") == "context-compaction"
    ]
    named = {line.split(" ", 1)[0]: line for text in chapters for line in text.splitlines() if re.match(r"m\d+ ", line)}
    rounds = [row for row in explained["rounds"] if row["state"] == "folded" and row["mark"] in named]
    if recall is None or not rounds:
        return []
    # Of a round with one result it is plain which line represents it; the result is its last message.
    row = max(rounds, key=lambda row: (int(row["to"][1:]) - int(row["mark"][1:]) == 1, row["tokens_before"]))
    original = text_of((as_mapping(await recall(row["to"])) or {}).get("content"))
    which = f"{row['to']} was" if row["to"] == row["mark"] else f"{row['mark']} to {row['to']} were"
    lines = [line for line in original.splitlines() if line.strip()][:SHOWN_LINES]
    quoted = [_fact("", f"  {truncate(line, width - INDENT - 4)}", "cyan") for line in (named[row["mark"]], *lines)]
    return [
        _fact("recall", f"{which} folded; the model now sees this line instead:"),
        quoted[0],
        _fact("", f"context.recall({row['to']!r}) returns the original, {len(original):,} characters:"),
        *quoted[1:],
    ]
