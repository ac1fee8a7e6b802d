"""What another package adds to a session, such as the texts of its chapters."""

from __future__ import annotations

from typing import Any

from ..compaction.strategies import Strategy
from ..view.sent_view import SentView
from ..view.undo import UNDONE


class SessionCompanion:
    """A companion that adds nothing. It keeps what the companion of an earlier process saved with the session.

    That may be about what was edited or erased, so it is kept until the history is changed other than at its end.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._revision = 0

    @property
    def late(self) -> Strategy | None:
        """The strategy that writes chapters again for a request, as `ViewRequest.late`; None to leave them."""
        return None

    async def before_request(self, token_budget: int | None, provider: object) -> None:
        """Prepare for a request, before its view is planned."""

    def handed_out(self, sent: SentView, provider: object) -> None:
        """Note that a view is sent to a provider; None if the loop did not name one."""

    def reopened(self) -> None:
        """Drop what derives from the history: another program may have changed that while the session was closed."""

    def undone(self, first: int) -> None:
        """Note that chapters from this seq on were taken back: the companion that knows them takes out what it has."""
        if self._kept:
            self._kept = {**self._kept, UNDONE: min(first, self._kept.get(UNDONE, first))}

    def state(self, revision: int) -> dict[str, Any]:
        """Return the JSON saved with the session, each companion's by its own name. `revision` is the history's."""
        return self._kept if revision == self._revision else {}

    def restore(self, state: dict[str, Any], revision: int) -> None:
        """Continue from what `state` returned when the session was saved; it may be of another version."""
        self._kept, self._revision = state, revision
