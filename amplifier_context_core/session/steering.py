"""What a person or a host changes of a session's views by hand: compact, preview, undo, pins, short forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import checked_flag, checked_text
from ..economics.meter import Units
from ..errors import ConfigError, PinRefused
from ..events import inside_handler
from ..futures import in_thread
from ..transcript.entry import Entry, seq_of
from ..view.directions import check_pin
from ..view.plan import ALL, CompactionJob, Plan
from ..view.undo import first_changed, undo_compaction, undone_report
from .requests import Requests
from .session import Session


class Steering:
    """Changes the views of a session by hand. `manager.py` documents each method."""

    def __init__(self, session: Session, requests: Requests) -> None:
        self._session = session
        self._requests = requests

    async def compact(self, focus: str | None, first: str | None, last: str | None) -> dict[str, Any]:
        session = self._session
        span = span_of(first, last)
        focus = None if focus is None else checked_text("focus", focus)
        await session.ready()
        directions = session.compactor.directions
        directions.focus = focus or directions.focus
        report = await session.then_save(self._compact(span))
        if report is None:
            return {"compacted": False, "reason": "nothing could be freed, or a handler postponed it"}
        return {"compacted": True, **report}

    async def preview(self, first: str | None, last: str | None) -> dict[str, Any]:
        """The plan of `compact` is not committed."""
        span = span_of(first, last)
        await self._session.ready()
        compactor = self._session.compactor
        async with compactor.lock.hold():
            plan = await self._plan()
            job = CompactionJob(plan, span, focus_drops=compactor.directions.focus_drops)
            result = (await compactor.compact(job)).result
            if result is None or not result.has_gain:
                return {"would_compact": False, "reason": "nothing could be freed"}
            before = {id(shown) for segment in plan.view.segments() for shown in segment.shown}
            segments = result.candidate.view.segments()
        changed = [one for one in segments if any(id(shown) not in before for shown in one.shown)]
        units = plan.request.limits.units
        rounds = [
            {"mark": f"m{one.first}", "to": f"m{one.last}", "state": one.state, "tokens": units.part(one.tokens)}
            for one in changed
        ]
        return {"would_compact": True, **result.report, "rounds": rounds}

    async def undo(self, mark: str | None) -> dict[str, Any]:
        session, compactor = self._session, self._session.compactor
        seq = None if mark is None else seq_of(mark)
        await session.load()
        counter = await session.counter()
        last = compactor.last_sent
        async with compactor.lock.hold():
            views = [view for view in compactor.cache.views if view.checkpoint]
            view = last.view if last and last.view in views else views[-1] if views else None
            if view is None:
                return {"undone": False, "reason": "nothing is folded"}
            system = last.prompt_tokens if last else 0
            limit = last.limits.threshold if last else int(view.budget * session.config.compact_threshold)
            compactor.cache.edits += 1
            undone = await undo_compaction(view, session.history.snapshot(), seq, limit - system, counter)
        if not undone:
            none = "nothing is folded; what compactions clipped or replaced stays so"
            return {"undone": False, "reason": f"no chapter holds {mark}" if mark else none}
        report = undone_report(undone)
        first = first_changed(undone)
        if first is not None:
            session.companion.undone(first)
        await session.save()
        return report

    async def pin(self, mark: str, pinned: object) -> None:
        session, compactor = self._session, self._session.compactor
        await session.load()
        history = session.history.snapshot()
        try:
            entry = history.find(seq_of(mark))
        except ValueError as problem:
            raise PinRefused(str(problem)) from None
        if entry is None:
            raise PinRefused(f"{mark}: the history has no such message")
        if not checked_flag("pinned", pinned):
            compactor.directions.pins.discard(entry.seq)
            await session.save()
            return
        async with compactor.lock.hold():  # or another task could pin between the check and its pin
            last = compactor.last_sent
            await in_thread(
                check_pin,
                entry,
                history,
                frozenset(compactor.directions.pins),
                capacity=last.limits.capacity if last else self._requests.last_asked()[0],
                units=last.limits.units if last else Units(),
                pin_share=session.config.pin_share,
            )
            compactor.directions.pins.add(entry.seq)
        await compactor.show_verbatim((entry.seq,))
        await session.save()

    async def register_short_form(self, call_id: str, summary: str) -> None:
        session = self._session
        summary = checked_text("summary", summary)
        if not checked_text("call_id", call_id):
            raise ConfigError("call_id", "must be the id of a call, got an empty text")
        await session.ready()
        compactor, seq = session.compactor, await self._newest_result(call_id)
        if compactor.directions.short_forms.register(seq, call_id, summary) and seq is not None:
            async with compactor.lock.hold():
                compactor.cache.render_again(seq)
        await session.save()

    async def _compact(self, span: range) -> dict[str, Any] | None:
        """Return the report, or None when there was nothing to free."""
        compactor = self._session.compactor
        if inside_handler(compactor):
            return None  # a handler of a compaction asks for another: there would be no end to it
        async with compactor.in_flight.hold():
            async with compactor.lock.hold():
                plan = await self._plan()
            _, result = await compactor.compacted(plan, span=span)
            await self._requests.announce(result)
        return result.report if result and result.has_gain else None

    async def _plan(self) -> Plan:
        """The caller holds the lock of the views."""
        return await self._session.compactor.cache.choose(await self._requests.for_last_budget())

    async def _newest_result(self, call_id: str) -> int | None:
        history = self._session.history.snapshot()
        found = _newest_with(call_id, history[history.gap.stop :])
        if found is None and history.gap:
            await self._session.load()
            found = _newest_with(call_id, self._session.history.snapshot()[:])
        return found.seq if found and call_id in found.answered_ids else None


def span_of(first: str | None, last: str | None) -> range:
    """Return the seqs from one mark to another (None for no bound); raise `ValueError` if one is no mark."""
    return range(seq_of(first) if first else ALL.start, seq_of(last) + 1 if last else ALL.stop)


def _newest_with(call_id: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the newest entry with the result of a call, or with the call."""
    having = (entry for entry in reversed(entries) if call_id in entry.answered_ids or call_id in entry.call_ids)
    return next(having, None)
