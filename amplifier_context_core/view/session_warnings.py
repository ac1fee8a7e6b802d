"""Warnings about a session for its people, each kind once."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, cast

from ..events import WARNING, Hooks, emit

log = logging.getLogger(__name__)

_MAX_TEXTS = 1_000  # kept for reports
_SENT = re.compile(r"(.*?)(?: at ([0-9]{1,18}))?", re.DOTALL)


class SessionWarnings:
    """The warnings of one session, in the log, as texts for reports and as ``context:warning``."""

    def __init__(self, session_id: str, hooks: Hooks | None) -> None:
        self.texts: list[str] = []  # newest last
        # Those of `once` that were given, each with the budget that it is about, in tokens, or 0.
        self.kinds: dict[str, int] = {}
        self._session_id = session_id
        self._hooks = hooks
        self._pending: list[dict[str, Any]] = []
        self._faults: set[str] = set()

    def once(self, kind: str, text: str, *, budget: int = 0, **figures: Any) -> None:
        """Warn of something once a session, not on every request; `figures` are further keys of the event."""
        if kind not in self.kinds:
            self.kinds[kind] = budget
            self.note(kind, text, **({"budget": budget} if budget else {}), **figures)

    def rearm(self, kind: str, budget: int) -> None:
        """Let `once` warn of this again, unless it did so at a smaller budget: this one says nothing of that."""
        if budget <= self.kinds.get(kind, 0):
            del self.kinds[kind]

    def sent(self) -> tuple[str, ...]:
        return tuple(f"{kind} at {budget}" if budget else kind for kind, budget in sorted(self.kinds.items()))

    def restore(self, sent: Iterable[str]) -> None:
        for text in sent:
            kind, budget = cast("re.Match[str]", _SENT.fullmatch(text)).groups()
            self.kinds[kind] = int(budget or 0)

    def fault(self, text: str) -> None:
        """Warn of a fault of a plug-in or of a setting, once a session in this process. Any thread may call it."""
        if text not in self._faults:
            self._faults.add(text)
            self.note("plugin", text)

    def note(self, kind: str, text: str, **figures: Any) -> None:
        """Warn of something each time it happens. May be called from any thread."""
        self.texts.append(text)
        del self.texts[:-_MAX_TEXTS]
        self._pending.append({"reason": kind, "message": text, **figures})
        log.warning("session %s: %s", self._session_id, text)

    async def emit_pending(self, owner: object) -> None:
        """The caller holds no lock: handlers run meanwhile."""
        while self._pending:
            await emit(self._hooks, owner, WARNING, self._pending.pop(0))

    def reset(self) -> None:
        """Drop the warnings about a history that was cleared."""
        self.texts.clear()
        self.kinds.clear()
