"""The request that the next answer is to, and which of the responses that providers report is that answer.

It is the view handed out last. But once a provider reports that it was sent a request, views that others ask for
meanwhile (a host's page, a side call) do not take its place.
"""

from __future__ import annotations

from ..economics.meter import MIN_RATIO
from ..messages.usage import Response, Usage, measured, usage_of
from .sent_view import SentView

_MAX_REPORTS = 64  # kept between two answers; an agent makes few side calls


class UsageReports:
    def __init__(self) -> None:
        self.request: SentView | None = None  # its view; None before the first view and once it is answered
        self.requested_at: str | None = None  # ISO 8601, UTC: when it was handed out; None without a request
        self.step = 0  # of the usage that was announced last; see `window_usage`
        self._answered: tuple[int, int] | None = None  # compactions when it was sent, and its tokens
        self._newest: tuple[SentView, str] | None = None
        self._is_sent = False  # a provider has the request, and its answer is still to come
        self._owned: tuple[Usage | None] | None = None  # what the loop itself reported of the view's request
        self._reports: list[Response] = []

    def begin(self, view: SentView, now: str) -> None:
        """Reports of it are collected unless a provider works on another one."""
        self._newest = view, now
        if not self._is_sent:
            self._expect_newest()

    def sent(self) -> None:
        """The provider was sent the view handed out last."""
        self._expect_newest()
        self._is_sent = self.request is not None

    def given_up(self) -> None:
        """The request may have no answer: it failed, or the conversation went on without one."""
        if self._is_sent:
            self._is_sent = False
            self._expect_newest()

    def _expect_newest(self) -> None:
        if self._newest is not None and self._newest[0] is not self.request:
            self.request, self.requested_at = self._newest
            self._owned = None
            self._reports.clear()

    def own(self, *, input_tokens: object, cache_write_tokens: object = 0) -> bool:
        """Note what the loop itself reported of the view's request; return False if its figures make no sense.
        `input_tokens`: None for a request that was refused; `cache_write_tokens` are a part of them.
        """
        usage = usage_of({"input_tokens": input_tokens, "cache_write_tokens": cache_write_tokens})
        if usage is None:
            self.given_up()
        if self.request is not None:
            self._owned = (usage,)
        return usage is not None

    def reported(self, compactions: int) -> int | None:
        """Return the tokens that the provider reported last; None if that was before the newest compaction."""
        return self._answered[1] if self._answered and self._answered[0] == compactions else None

    def end(self, response: Response | None = None) -> Usage | None:
        """The answer came: later reports belong to other requests. Return its usage: the loop's own report goes before
        the matching response.
        """
        usage = self._owned[0] if self._owned is not None else response.usage if response else None
        if usage is not None and self.request is not None:
            self._answered = self.request.compactions, measured(usage)
        self.request = self.requested_at = self._newest = None
        self._is_sent = False
        self._reports.clear()
        return usage

    def clear(self) -> None:
        self.end()
        self._answered = None

    def record(self, response: Response) -> None:
        if self.request is not None and len(self._reports) < _MAX_REPORTS:
            self._reports.append(response)

    def match(self, counted: int, expected: float) -> Response | None:
        """Return the response to the view; None if there is none.

        With side calls in between, it is the nearest to the size that is expected of the view. A response that reports
        far fewer tokens than the view has, as `counted` here, was a side call, even if it is the only one.
        """

        def distance(response: Response) -> float:
            return float("inf") if response.usage is None else abs(measured(response.usage) - expected)

        candidates = [one for one in self._reports if one.usage is None or measured(one.usage) >= MIN_RATIO * counted]
        return min(candidates, key=distance, default=None)
