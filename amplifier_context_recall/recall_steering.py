"""The operations of the tool with which a user steers, by an agent's words, what the next request shows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amplifier_context_core.errors import PinRefused
from amplifier_context_core.rendering.quoting import single_line

Operation = Callable[[Mapping[str, Any]], Awaitable[str]]

MARKS = re.compile(r"\s*[mM]?(\d{1,12})\s*(?:(?:-|\u2013|\.\.|to)\s*[mM]?(\d{1,12})\s*)?")


class RecallRefused(Exception):
    """A call cannot be carried out; its text says why, and what to do."""


def steering_operations(capability: Callable[[str], Any]) -> dict[str, Operation]:
    """Return the operations by their names."""
    made = _Steering(capability)
    return {
        "pin": made.pin,
        "compact": made.compact,
        "preview": made.preview,
        "undo": made.undo,
        "usage": made.usage,
        "explain": made.explain,
    }


class _Steering:
    def __init__(self, capability: Callable[[str], Any]) -> None:
        self._capability = capability

    async def pin(self, given: Mapping[str, Any]) -> str:
        mark = str(given.get("mark") or "").strip()
        pinned = given.get("pinned")
        pinned = True if pinned is None else pinned
        if not isinstance(pinned, bool):
            raise RecallRefused("`pinned` must be true or false")
        try:
            await self._capability("context.pin")(mark, pinned)
        except PinRefused as refusal:
            raise RecallRefused(f"not pinned: {refusal}") from None
        return f"{mark} is {'pinned' if pinned else 'not pinned any more'}"

    async def compact(self, given: Mapping[str, Any]) -> str:
        focus = given.get("focus")
        first, last = _range(given)
        compact = self._capability("context.compact")
        report = await compact(focus if isinstance(focus, str) and focus else None, first, last)
        if not report["compacted"]:
            return f"not compacted: {report['reason']}"
        return f"compacted from {report['before_tokens']:,} to {report['after_tokens']:,} tokens"

    async def preview(self, given: Mapping[str, Any]) -> str:
        report = await self._capability("context.preview")(*_range(given))
        if not report["would_compact"]:
            return f"nothing would change: {report['reason']}"
        spans = ", ".join(f"{row['mark']} to {row['to']} {row['state']}" for row in report["rounds"])
        return f"from {report['before_tokens']:,} to {report['after_tokens']:,} tokens: {spans}"

    async def undo(self, given: Mapping[str, Any]) -> str:
        report = await self._capability("context.undo")(str(given.get("mark") or "").strip() or None)
        if "shows" not in report:
            return f"not undone: {report['reason']}"
        return f"{report['first']} to {report['last']}: the next request shows the {report['shows']}"

    async def usage(self, given: Mapping[str, Any]) -> str:
        return await self._capability("context.describe")()

    async def explain(self, given: Mapping[str, Any]) -> str:
        report = await self._capability("context.explain")()
        view = report["view"]
        states: dict[str, int] = {}
        for row in report["rounds"]:
            states[row["state"]] = states.get(row["state"], 0) + 1
        rounds = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        return (
            f"{view['tokens']:,} of {view['budget']:,} tokens; {view['why']}\n"
            f"rounds: {rounds}\ncompactions so far: {report['compactions']:,}"
        )


def _range(given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    wanted = str(given.get("mark") or "").strip()
    if not wanted:
        return None, None
    found = MARKS.fullmatch(wanted)
    if found is None:
        raise RecallRefused(f"{single_line(wanted)[:60]} is neither a mark nor a range")
    return f"m{found[1]}", f"m{found[2] or found[1]}"
