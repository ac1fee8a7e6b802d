"""What a session says of itself: which messages its views show and how, and how full the window is."""

from __future__ import annotations

from typing import Any

from ..arguments import checked_count
from ..economics.trigger import recall_room
from ..futures import in_thread
from ..rendering.recalled import ONE_LINE
from ..view.explain import chapters_of, explain
from .answers import Answers
from .requests import Requests
from .session import Session


class Reports:
    """Reports on the views of a session. `manager.py` documents each method."""

    def __init__(self, session: Session, requests: Requests, answers: Answers) -> None:
        self._session = session
        self._requests = requests
        self._answers = answers

    async def explain(self) -> dict[str, Any]:
        session, compactor = self._session, self._session.compactor
        await session.load()
        last = await self._requests.last_sent()
        async with compactor.lock.hold():  # a view that another thread works on may be in the middle of a change
            history = session.history.snapshot()
            own = {
                "session_id": session.history.session_id,
                "turns": session.history.turn_count,
                "compactions": compactor.compactions,
                "tokens_saved": compactor.tokens_saved,  # as the providers count
                "warnings": [*session.warnings.texts],
                "cache": self._answers.cache_health.line,
            }
            pins, exact = frozenset(compactor.pins), session.counter.is_exact
            return own | await in_thread(explain, last, history, config=session.config, pins=pins, exact=exact)

    async def chapters(self) -> list[dict[str, Any]]:
        await self._session.ready()
        last = await self._requests.last_sent()
        async with self._session.compactor.lock.hold():
            return chapters_of(last.view.segments())

    async def usage(self) -> dict[str, Any]:
        await self._session.ready()
        return await self._requests.usage_of(await self._requests.last_sent())

    async def recall_room(self, wanted: int) -> int:
        session, requests = self._session, self._requests
        await session.ready()
        last = await requests.last_sent()
        left = recall_room(session.compactor.limits(last.limits.budget, last.key), session.config.recall_share)
        left -= last.view.recalled.tokens + requests.recall_taken
        free = last.limits.capacity - last.counted - requests.recall_taken
        granted = max(0, min(checked_count("wanted", wanted), left, free, last.view.output_limit - ONE_LINE))
        requests.recall_taken += granted
        return granted
