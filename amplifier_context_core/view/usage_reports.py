"""What providers report while a view is out, and which of it belongs to the answer that comes."""

from __future__ import annotations

from ..messages.usage import Response, measured
from .meter import LEAST_RATIO

_MOST = 64  # reports held between two answers; an agent's side calls are few


class UsageReports:
    """Reports since the last view was handed out.

    Attributes:
        asked: ISO 8601, UTC: when that was; None before the first view and once it is answered.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        self._reports: list[Response] = []

    def begin(self, now: str) -> None:
        """A view was handed out."""
        self.asked = now
        self._reports.clear()

    def end(self) -> None:
        """The answer came: what is reported from now on belongs to something else."""
        self.asked = None
        self._reports.clear()

    def record(self, response: Response) -> None:
        """A provider reported a response."""
        if self.asked is not None and len(self._reports) < _MOST:
            self._reports.append(response)

    def match(self, counted: int, expected: float) -> Response | None:
        """The response to the view: with side calls between, the one nearest its size.

        One that reports far less than the view holds was a side call, even when it is the only one.

        Args:
            counted: tokens of the view, as counted here.
            expected: tokens of the view, as its provider would report them.
        """

        def distance(response: Response) -> float:
            return float("inf") if response.usage is None else abs(measured(response.usage) - expected)

        heard = [one for one in self._reports if one.usage is None or measured(one.usage) >= LEAST_RATIO * counted]
        return min(heard, key=distance, default=None)
