"""The store contract, session ids: which are refused, and that all others name sessions of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Extent, Store

from .fixtures import StoreFixtures, assert_same
from .samples import HOSTILE_IDS, ODD_IDS, entries, entry

Ask = Callable[[Store, str], Awaitable[object]]


ASKED: dict[str, Ask] = {
    "open": lambda store, session_id: store.open(session_id),
    "extent": lambda store, session_id: store.extent(session_id),
    "append": lambda store, session_id: store.append(session_id, entries(1, 1)),
    "read": lambda store, session_id: store.read(session_id),
    "find": lambda store, session_id: store.find(session_id, [1]),
    "replace": lambda store, session_id: store.replace(session_id, 0, entries(1, 1)),
    "rewrite": lambda store, session_id: store.rewrite(session_id, entries(1, 1)),
    "archived": lambda store, session_id: store.archived(session_id),
    "save_checkpoint": lambda store, session_id: store.save_checkpoint(session_id, 0, b""),
    "load_checkpoint": lambda store, session_id: store.load_checkpoint(session_id),
    "fork": lambda store, session_id: store.fork(session_id, "child"),
    "fork onto": lambda store, session_id: store.fork("s", session_id),
    "delete": lambda store, session_id: store.delete(session_id),
}


class SessionIds(StoreFixtures):
    """Session ids name folders and appear in logs and keys: some are refused, all others are valid."""

    async def test_an_id_that_cannot_be_one_is_refused_and_creates_nothing(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        for wrong, session_id in HOSTILE_IDS.items():
            for name, ask in ASKED.items():
                try:
                    await ask(store, session_id)
                except ConfigError as refused:
                    text = str(refused)
                    assert text.startswith("session_id: "), f"{name}, {wrong}: {text!r}"
                    assert text.isprintable(), f"{name}, {wrong}: {text!r}"
                else:
                    pytest.fail(f"{name} took an id that cannot be one: {wrong}")
        assert [info.session_id for info in await store.sessions()] == ["s"]
        assert_same(await store.read("s"), entries(1, 2))

    async def test_odd_ids_are_sessions_of_their_own(self, store: Store) -> None:
        for number, session_id in enumerate(ODD_IDS, 1):
            await store.append(session_id, [entry(number, f"of {session_id}", session_id=session_id)])
            await store.save_checkpoint(session_id, 1, session_id.encode())
        assert sorted(info.session_id for info in await store.sessions()) == sorted(ODD_IDS)
        for number, session_id in enumerate(ODD_IDS, 1):
            assert_same(await store.read(session_id), [entry(number, f"of {session_id}", session_id=session_id)])
            assert await store.load_checkpoint(session_id) == session_id.encode()
            assert await store.extent(session_id) == Extent(1, number)
