"""The responses that providers report after a view was handed out, and which of them is the answer to it."""

from __future__ import annotations

from ..messages.usage import Response, Usage, measured
from .meter import MIN_RATIO

_MAX_REPORTS = 64  # kept between two answers; an agent makes few side calls


class UsageReports:
    """Reports since the last view was handed out.

    Attributes:
        requested_at: ISO 8601, UTC: when that was; None before the first view and once it is answered.
    """

    def __init__(self) -> None:
        self.requested_at: str | None = None
        self._owned: tuple[Usage | None] | None = None  # what the loop itself reported of the view's request
        self._reports: list[Response] = []

    def begin(self, now: str) -> None:
        """Begin to collect reports: a view was handed out."""
        self.requested_at = now
        self._owned = None
        self._reports.clear()

    def own(self, usage: Usage | None) -> None:
        """Note what the loop itself reported of the view's request; None for a request that was refused."""
        if self.requested_at is not None:
            self._owned = (usage,)

    def usage_for(self, response: Response | None) -> Usage | None:
        """Return the usage to learn from: the loop's own report, if it made one, else that of the matching response."""
        if self._owned is not None:
            return self._owned[0]
        return response.usage if response else None

    def end(self) -> None:
        """Drop the reports: the answer came, and later reports belong to other requests."""
        self.requested_at = None
        self._reports.clear()

    def record(self, response: Response) -> None:
        """Keep the response that a provider reported."""
        if self.requested_at is not None and len(self._reports) < _MAX_REPORTS:
            self._reports.append(response)

    def match(self, counted: int, expected: float) -> Response | None:
        """Return the response to the view; None if there is none.

        With side calls in between, it is the response nearest the view's size. A response that reports far fewer tokens
        than the view has was a side call, even if it is the only one.

        Args:
            counted: tokens of the view, as counted here.
            expected: tokens of the view, as its provider would report them.
        """

        def distance(response: Response) -> float:
            return float("inf") if response.usage is None else abs(measured(response.usage) - expected)

        candidates = [one for one in self._reports if one.usage is None or measured(one.usage) >= MIN_RATIO * counted]
        return min(candidates, key=distance, default=None)
