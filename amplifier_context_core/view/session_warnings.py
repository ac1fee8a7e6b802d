"""Warnings about a session for its people, each kind once."""

from __future__ import annotations

import logging
from typing import Any

from ..events import WARNING, Hooks, emit

log = logging.getLogger(__name__)

_MAX_TEXTS = 1_000  # kept for reports


class SessionWarnings:
    """The warnings of one session, in the log, as texts for reports and as ``context:warning``.

    Attributes:
        texts: of the warnings, newest last.
        kinds: those of `once` that were given.
    """

    def __init__(self, session_id: str, hooks: Hooks | None) -> None:
        self.texts: list[str] = []
        self.kinds: set[str] = set()
        self._session_id = session_id
        self._hooks = hooks
        self._pending: list[dict[str, Any]] = []
        self._faults: set[str] = set()

    def once(self, kind: str, text: str, **figures: Any) -> None:
        """Warn of something once a session, not on every request.

        Args:
            kind: identifies the warning, e.g. ``overflow``.
            text: for people.
            figures: further keys of the event.
        """
        if kind not in self.kinds:
            self.kinds.add(kind)
            self._note({"reason": kind, "message": text, **figures})

    def note(self, kind: str, text: str) -> None:
        """Warn of something each time it happens. May be called from any thread."""
        self._note({"reason": kind, "message": text})

    def fault(self, text: str) -> None:
        """Warn of a fault of a plug-in, once a session in this process. May be called from any thread."""
        if text not in self._faults:
            self._faults.add(text)
            self._note({"reason": "plugin", "message": text})

    def _note(self, data: dict[str, Any]) -> None:
        self.texts.append(data["message"])
        del self.texts[:-_MAX_TEXTS]
        self._pending.append(data)
        log.warning("session %s: %s", self._session_id, data["message"])

    async def emit_pending(self, owner: object) -> None:
        """Emit the warnings that handlers have not seen yet."""
        while self._pending:
            await emit(self._hooks, owner, WARNING, self._pending.pop(0))

    def reset(self) -> None:
        """Drop the warnings about a history that was cleared."""
        self.texts.clear()
        self.kinds.clear()
