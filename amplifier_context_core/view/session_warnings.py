"""SessionWarnings: what people should know of a session, each kind of trouble told once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..events import WARNING, Hooks, emit

log = logging.getLogger(__name__)

_MOST = 1_000  # notices kept for reports


class SessionWarnings:
    """What was noticed in one session.

    Attributes:
        texts: in words, newest last.
        kinds: those that are told once and were.
    """

    def __init__(self, session_id: str, hooks: Hooks | None) -> None:
        self.texts: list[str] = []
        self.kinds: set[str] = set()
        self._session_id = session_id
        self._hooks = hooks
        self._pending: list[dict[str, Any]] = []
        self._faults: set[str] = set()

    def once(self, kind: str, text: str, *, budget: int, members: Sequence[dict[str, Any]]) -> None:
        """Notice a kind of trouble, once a session, not on every request."""
        if kind not in self.kinds:
            self.kinds.add(kind)
            self._note({"reason": kind, "message": text, "budget": budget, "members": list(members)})

    def note(self, kind: str, text: str) -> None:
        """Notice something each time it happens. May be called from any thread."""
        self._note({"reason": kind, "message": text})

    def fault(self, text: str) -> None:
        """Notice a fault of a plug-in: each once, in every process. May be called from any thread."""
        if text not in self._faults:
            self._faults.add(text)
            self._note({"reason": "plugin", "message": text})

    def _note(self, data: dict[str, Any]) -> None:
        self.texts.append(data["message"])
        del self.texts[:-_MOST]
        self._pending.append(data)
        log.warning("session %s: %s", self._session_id, data["message"])

    async def emit_pending(self, owner: object) -> None:
        """Tell handlers what they have not been told."""
        while self._pending:
            await emit(self._hooks, owner, WARNING, self._pending.pop(0))

    def reset(self) -> None:
        """The history was cleared: what was said of it is over."""
        self.texts.clear()
        self.kinds.clear()
