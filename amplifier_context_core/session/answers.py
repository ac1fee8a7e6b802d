"""What providers report of a session's requests, and what the session learns from it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from ..messages.usage import Response
from ..view.usage_reports import CacheHealth, UsageReports
from .session import Session

log = logging.getLogger(__name__)


class Answers:
    """`reports` are of the request that the next answer is to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.reports = UsageReports()
        self.cache_health = CacheHealth()

    async def response_to(self, message: dict[str, Any]) -> Response | None:
        """Return what the provider reported of an answer; None if that is unknown.

        It comes with the request that it answers, if the message has thinking that is bound to it.
        """
        request = self.reports.request
        if request is None:
            return None
        response = self.reports.match(request.counted, self._session.meter.estimate(request.counted, request.key))
        if not request.prefix.binds_answer(message, response):
            return response
        return replace(response or Response(), prefix=await request.digest())

    def answered(self, response: Response | None) -> None:
        request = self.reports.request
        usage = self.reports.end(response)
        if usage and request:
            self._session.meter.report(request.counted, usage, request.key)
        reported = response.usage if response else None  # a loop's own report has no cache reads
        if reported and request and self.cache_health.record(request, reported):
            self._session.warnings.once("cache setting", self.cache_health.advice)

    def refused_as_too_long(self) -> None:
        """The next view is smaller."""
        session = self._session
        refused = self.reports.request or session.compactor.last_sent
        if refused is not None:
            window = session.meter.refused(refused.counted, refused.key)
            id = session.history.session_id
            log.info("session %s: a request was refused as too long; window now %d tokens", id, window)
