"""How full the window of the last request is: by kind, up to the next compaction, and what a request costs.

All figures are in the provider's tokens, as `figures` makes them. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from textwrap import wrap
from typing import Any

from ..economics.meter import Units
from ..messages.carriers import is_carrier
from ..messages.parsing import metadata_of
from .figures import figure_of
from .sent_view import SentView

TOOLS, SYSTEM, PINS, PEOPLE, CHAPTERS, ROUNDS = "tools", "system", "pins", "people", "chapters", "rounds"
KINDS = (TOOLS, SYSTEM, PINS, PEOPLE, CHAPTERS, ROUNDS)
STEPS = 20  # of a full window; the event is emitted when another step is reached

_WIDEST = 400  # columns; more would be memory for a bar
_NARROWEST = 44  # columns: a row with a bar of 10


def window_usage(sent: SentView, pins: Collection[int], *, exact: bool, reported: int | None) -> dict[str, Any]:
    """`exact` if this package's counts are those of a provider's tokenizer; `reported` by the provider since the last
    compaction.
    """
    limits, units = sent.limits, sent.limits.units
    used, room = units.request(sent.counted), limits.reported(limits.threshold)
    growth = _growth(sent)
    left = max(0, room - used)
    prices, new = limits.prices, units.part(growth)
    return {
        "used": used,
        "size": limits.budget,
        "free": max(0, limits.budget - used),
        "figure": figure_of(units, exact=exact),
        "reported": reported,
        "kinds": _by_kind(_counted(sent, pins), units),
        "compaction": {"above": room, "left": left, "requests": left // new if new else None},
        "next_request": {
            "growth": new,
            "warm": round(prices.read * used + prices.write * new),
            "cold": round(prices.write * (used + new)),
        },
    }


def step_of(sent: SentView) -> int:
    """`STEPS` is full."""
    limits = sent.limits
    return min(STEPS, STEPS * limits.units.request(sent.counted) // limits.budget)


def _counted(sent: SentView, pins: Collection[int]) -> Counter[str]:
    """Count each kind but the tools. A pin counts with its round, in which it stays."""
    people: set[int] = set()
    pinned: set[int] = set()
    for segment in sent.view.segments():
        seqs = {entry.seq for entry in segment.round.entries} if segment.round else set[int]()
        if not seqs.isdisjoint(pins):
            pinned |= seqs
        elif segment.round:
            people |= {entry.seq for entry in segment.round.entries if entry.human}
    counted = Counter({SYSTEM: sent.prompt_tokens})
    for shown in sent.messages:
        is_pin, is_person = shown.seq in pinned, shown.seq in people
        is_chapter = shown.seq <= 0 and (is_carrier(shown.message) or "chapter" in metadata_of(shown.message))
        kind = CHAPTERS if is_chapter else PINS if is_pin else PEOPLE if is_person else ROUNDS
        counted[kind] += shown.tokens
    return counted


def _by_kind(counted: Counter[str], units: Units) -> dict[str, int]:
    """They are differences of sizes, so that they add up to the request."""
    kinds = {TOOLS: units.overhead}
    total = 0
    for kind in KINDS[1:]:
        before, total = units.request(total), total + counted[kind]
        kinds[kind] = units.request(total) - before
    return kinds


def _growth(sent: SentView) -> int:
    """Return the counted tokens that came with each request so far: since the checkpoint, or since the beginning."""
    tail = sent.view.tail
    if sent.view.checkpoint is not None and tail.responses:
        return max(1, tail.tokens - tail.recalled.tokens) // tail.responses
    answers = sum(1 for shown in sent.messages if shown.message.get("role") == "assistant")
    return sum(shown.tokens for shown in sent.messages) // max(1, answers)


def line_of(usage: dict[str, Any]) -> str:
    used, size, compaction = usage["used"], usage["size"], usage["compaction"]
    requests = compaction["requests"]
    about = f", about {requests:,} request{'s' * (requests != 1)}" if requests is not None else ""
    due = f"compaction in {compaction['left']:,} tokens{about}" if compaction["left"] else "compaction is due"
    return f"{used:,} of {size:,} tokens ({used / size:.0%}); {due}"


def text_of_usage(usage: dict[str, Any], width: int = 80) -> str:
    """Return the usage as a screen of plain text: a bar, and a row for each kind with its tokens and share. `width`:
    columns, from 44 to 400; others are taken for the nearest of these.
    """
    width = min(max(_NARROWEST, width), _WIDEST)
    size, cost = usage["size"], usage["next_request"]
    rows = [*usage["kinds"].items(), ("free", usage["free"])]
    bar = width - 34
    lines = wrap(line_of(usage), width)
    for kind, tokens in rows:
        share = tokens / size
        filled = min(bar, round(share * bar))
        lines.append(f"{kind:<9} {tokens:>11,} {share:>6.1%}  {'█' * filled}{'·' * (bar - filled)}")
    reported = usage["reported"]
    said = "unknown since the last compaction" if reported is None else f"{reported:,} tokens"
    figures = f"figures: {usage['figure']}; reported by the provider: {said}"
    costs = f"next request: {cost['warm']:,} with a warm cache, {cost['cold']:,} with a cold one (input tokens)"
    for line in (figures, costs):
        lines += wrap(line, width)
    return "\n".join(lines)
