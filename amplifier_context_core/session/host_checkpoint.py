"""The checkpoints of a session as JSON, for a host that keeps transcripts itself.

Such a host gives a new process the saved messages: the session's own store is empty and has no checkpoint. The host
offers `context.preserve_evidence`, and saves or restores a record of the checkpoints while that is awaited. The first
view is then the last one of the process before. A record of another history, model or configuration is refused; the
view is made from the history instead, which is always complete.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, cast

from ..compaction.checkpoint import Checkpoint
from ..messages.hashing import chain_hash, content_hash
from ..messages.parsing import parse_message
from ..transcript.transcript import Snapshot
from ..view.resume import collect_checkpoints
from ..view.session_state import SessionState, counter_name, dump, load
from .session import Session

log = logging.getLogger(__name__)

FORMAT = "amplifier-context-checkpoint-v1"


class HostCheckpoint:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._awaiting = False
        self._awaited_at = -1  # compactions when the host was last awaited
        # The checkpoints of the last export, and its record: hosts ask after each tool, and it may have megabytes.
        self._exported: tuple[list[Checkpoint | None], dict[str, Any]] = ([], {})
        self._status: dict[str, Any] = {"status": "empty"}

    async def before_request(self, preserve: object) -> None:
        """Await the host with the whole history: before the first request, and the first after each compaction.

        A host that fails is awaited again before the next request. What it returns is not used: a history is never
        clipped, so nothing has to be found again elsewhere. `preserve` is its `context.preserve_evidence`, if it offers
        it.
        """
        compactions = self._session.compactor.compactions
        if self._awaiting or not callable(preserve) or self._awaited_at == compactions:
            return
        self._awaiting = True  # the host may ask for a view itself
        try:
            await self._session.counter()
            await cast("Awaitable[object]", preserve(await self._session.messages()))
            self._awaited_at = compactions
        except Exception as problem:  # noqa: BLE001 - code of other parties
            log.warning("context.preserve_evidence of the host failed (%s)", type(problem).__name__)
        finally:
            self._awaiting = False

    def export(self, identity: object) -> dict[str, Any] | None:
        """Return the record of the checkpoints; None while there is none of the history as it is now. `identity`:
        provider and model, as the host names them. Raises `ValueError`: it lacks one of them.
        """
        identity = _identity(identity)
        counter, cache = self._session.counter.loaded, self._session.compactor.cache
        checkpoints = [view.checkpoint for view in cache.valid_views()]
        if counter is None or not checkpoints:
            return None
        if self._exported[0] != checkpoints:
            state = collect_checkpoints(self._session.history, cache, counter)
            text = dump(state).decode()
            revision = {"messages": state.covered_count}
            record = {"format": FORMAT, "sourceRevision": revision, "state": text, "sha256": _sha256(text)}
            self._exported = checkpoints, record
        self._status = {"status": "current"}
        return {**self._exported[1], "identity": identity}

    def restore(self, record: object, identity: object) -> dict[str, Any]:
        """Continue from a record of `export`, if it is of this history, identity and configuration. Return ``status``:
        ``restored``; ``current`` if the session has a checkpoint already; ``rejected`` with a ``reason`` otherwise.
        """
        try:
            status = {"status": self._restored(record, _identity(identity))}
        except ValueError as problem:
            status = {"status": "rejected", "reason": str(problem)}
        self._status = {**status, "originalsAvailable": True}
        return dict(self._status)

    def status(self) -> dict[str, Any]:
        """Return what `restore` returned last, or ``current`` after an export; ``empty`` before either."""
        return dict(self._status)

    def _restored(self, record: object, identity: Mapping[str, str]) -> str:
        cache, counter = self._session.compactor.cache, self._session.counter.loaded
        if cache.valid_views():
            return "current"
        if counter is None:
            raise ValueError("a checkpoint is restored while context.preserve_evidence is awaited")
        if not isinstance(record, dict):
            raise ValueError("the record is no object")
        given = cast("dict[str, Any]", record)
        text = given.get("state")
        if given.get("format") != FORMAT or not isinstance(text, str):
            raise ValueError("the record is of another format")
        if given.get("sha256") != _sha256(text):
            raise ValueError("the record is damaged")
        if given.get("identity") != identity:
            raise ValueError("the record is of another provider or model")
        state = load(text.encode())
        key = cache.factory.compatibility_key(counter)
        if state is None or (state.counter, state.compatibility_key) != (counter_name(counter), key):
            raise ValueError("the record is of another configuration")
        history = self._session.history.snapshot()
        if not state.views or not _is_of(state, history):
            raise ValueError("the record is of another history")
        try:
            _check_messages(state)
            cache.restore(_of_one_session(state), {entry.seq: entry for entry in history}, counter)
        except (IndexError, KeyError, ValueError) as problem:
            raise ValueError(f"the record makes no sense ({type(problem).__name__})") from None
        return "restored"


def _identity(identity: object) -> dict[str, str]:
    if isinstance(identity, dict):
        given = cast("dict[object, object]", identity)
        provider, model = given.get("provider"), given.get("model")
        if isinstance(provider, str) and isinstance(model, str) and provider and model:
            return {"provider": provider, "model": model}
    raise ValueError("a checkpoint needs the names of a provider and a model")


def _is_of(state: SessionState, history: Snapshot) -> bool:
    """True if all checkpoints cover messages of this history, by content and by seq: their marks are right then."""
    if history.gap:
        return False
    found, digest = set[tuple[int, str]](), b""
    last = history.leading_count + max((view.checkpoint.covered for view in state.views), default=0)
    for covered, entry in enumerate(history[history.leading_count : last], start=1):
        digest = chain_hash(digest, entry.seq, content_hash(entry.message))
        found.add((covered, digest.hex()))
    return found.issuperset((view.checkpoint.covered, view.digest) for view in state.views)


def _check_messages(state: SessionState) -> None:
    """Check the messages that the checkpoints show as those of a caller: the kernel refuses a request otherwise."""
    for view in state.views:
        for segment in view.checkpoint.segments:
            for shown in segment.shown:
                parse_message(shown.message)


def _of_one_session(state: SessionState) -> SessionState:
    """Let no other session use the checkpoints: a host's file is not trusted by all of them."""
    views = (replace(view, checkpoint=replace(view.checkpoint, from_content=False)) for view in state.views)
    return replace(state, views=tuple(views))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
