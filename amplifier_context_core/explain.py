"""Where every round of a view stands, in plain JSON: for people, for tests, for the live display."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from .checkpoint import Checkpoint, Piece
from .transcript import Snapshot

if TYPE_CHECKING:
    from .manager import ContextManager
    from .views import View

_MOST_ROUNDS = 5_000  # rounds listed one by one


def explain(manager: ContextManager) -> dict[str, Any]:
    """The report of the view handed out last; see docs/architecture.md for its fields."""
    view = manager.views.last
    history = manager.history.snapshot()
    if view is None:
        raise ValueError("no view was handed out yet")
    limits = view.limits
    pieces = manager.views.pieces()
    checkpoint = view.line.checkpoint
    exact = getattr(manager.counter, "exact", False)
    figure = "measured" if manager.meter.is_measured(view.key) else "counted" if exact else "estimated"
    mends = manager.views.mends()
    rounds: list[dict[str, Any]] = []
    for piece in pieces:
        rounds.extend(_rows(piece, mends.get(piece.first, ())))
    rounds.extend(_dropped(pieces, history, checkpoint))
    rounds.sort(key=lambda row: int(row["mark"][1:]))
    floor = [piece for piece in pieces if piece.floor]
    prompt = sum(shown.tokens for shown in view.system)
    return {
        "session_id": manager.history.session_id,
        "messages": len(history),
        "turns": manager.turn_count,
        "view": {
            "messages": len(view.system) + len(view.messages),
            "tokens": manager.meter.estimate(view.counted, view.key),
            "counted": view.counted,
            "budget": limits.budget,
            "room": limits.room,
            "trigger": limits.trigger,
            "target": limits.target,
            "prefix_tokens": view.prefix,
            "chapter_tokens": sum(piece.tokens for piece in pieces if piece.chapter),
            "checkpoint": checkpoint.mark if checkpoint else None,
            "figure": figure,
            "why": _why(manager, view),
        },
        "floor": {
            "tokens": prompt + sum(piece.tokens for piece in floor),
            "members": [{"mark": "system prompt", "tokens": prompt, "why": "system prompt"}] * bool(prompt)
            + [{"mark": piece.mark, "tokens": piece.tokens, "why": piece.floor} for piece in floor],
        },
        "compactions": manager.views.compactions,
        "tokens_saved": manager.views.saved_tokens,
        "rounds": rounds[-_MOST_ROUNDS:],
        "warnings": list(manager.notices.texts),
    }


def _why(manager: ContextManager, view: View) -> str:
    limits = view.limits
    config = manager.config
    if not config.auto_compact:
        return f"auto_compact is off: compacted only above the budget of {limits.room:,} tokens"
    text = f"compacted above {limits.trigger:,} tokens, {limits.trigger / limits.room:.0%} of {limits.room:,}"
    if config.cadence == "auto":
        text += ": where carrying on has cost what a compaction will"
    if limits.room != limits.budget:
        text += f" (a budget of {limits.budget:,} corrected by what the provider reported)"
    if view.counted > limits.trigger and view.line.attempt:
        text += f"; not tried again before {view.line.attempt.until:,}: too little could be freed"
    return text


def _rows(piece: Piece, mends: tuple[str, ...]) -> list[dict[str, Any]]:
    if piece.chapter is None:
        rule = piece.rule if not piece.floor else piece.floor if not piece.rule else f"{piece.floor}; {piece.rule}"
        return [_row(piece, piece.first, piece.last, piece.turn, piece.before, piece.tokens, "; ".join((rule, *mends)))]
    return [_row(piece, line.first, line.last, line.turn, line.before, line.tokens) for line in piece.chapter.lines]


def _row(piece: Piece, first: int, last: int, turn: str, before: int, after: int, rule: str = "") -> dict[str, Any]:
    return {
        "mark": f"m{first}",
        "to": f"m{last}",
        "turn": turn,
        "state": piece.state,
        "rule": (rule or piece.rule).strip("; "),
        "tokens_before": before,
        "tokens_after": after,
    }


def _dropped(pieces: list[Piece], history: Snapshot, checkpoint: Checkpoint | None) -> list[dict[str, Any]]:
    """Stretches that the checkpoint covers and no piece and no line of a chapter stands for, in the order of history.

    The system prompt before them is none.
    """
    if checkpoint is None:
        return []
    spoken = {entry.seq for piece in pieces if piece.round for entry in piece.round.entries}
    lines = sorted((line.first, line.last) for piece in pieces if piece.chapter for line in piece.chapter.lines)
    rows: list[dict[str, Any]] = []
    silent = False
    for entry in history[history.leading : history.leading + checkpoint.covered]:
        place = max(0, bisect_right(lines, (entry.seq, entry.seq)) - 1)
        told = entry.seq in spoken or any(first <= entry.seq <= last for first, last in lines[place : place + 2])
        if not told and silent:
            rows[-1]["to"] = entry.mark
            rows[-1]["tokens_before"] += entry.tokens
        elif not told:
            rows.append(
                {
                    "mark": entry.mark,
                    "to": entry.mark,
                    "turn": "",
                    "state": "dropped",
                    "rule": "not shown",
                    "tokens_before": entry.tokens,
                    "tokens_after": 0,
                }
            )
        silent = not told
    return rows
