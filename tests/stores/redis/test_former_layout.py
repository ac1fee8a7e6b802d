"""Sessions as commit 37ba2a6 kept them, recorded with its code. That all they hold is carried over is a test of
`tests/data/test_stored.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import SessionInUse, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_testing.contract.samples import entries

pytestmark = pytest.mark.redis

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "sessions_of_37ba2a6.json").read_text())
FAR = 2**53  # milliseconds: a lease that does not expire


@pytest.fixture
def former(client: Any, prefix: str) -> Any:
    """The keys of the recorded sessions."""
    for name, (kind, value) in RECORDED.items():
        key = name.replace("PREFIX", prefix)
        match kind:
            case "hash":
                client.hset(key, mapping=value)
            case "list":
                client.rpush(key, *value)
            case "zset":
                client.zadd(key, value)
            case _:
                client.set(key, value)
    client.hset(f"{{{prefix}:leased}}:meta", "expires", FAR)
    return client


async def seqs(store: Store, session_id: str) -> list[int]:
    return [one.seq for one in await store.read(session_id)]


async def test_a_session_goes_on_its_quarantine_is_erased_and_all_are_listed(
    store: Store, former: Any, prefix: str
) -> None:
    key = f"{{{prefix}:s}}:session"
    await store.append("s", entries(12, 13))
    assert former.hget(key, "d:0") == "garbage"
    await store.replace("s", 6, entries(14, 14))
    assert await seqs(store, "s") == [1, 3, 4, 5, 9, 10, 14]
    assert [one.seq for one in await store.archived("s")] == [6, 7, 8, 11, 12, 13]
    await store.rewrite("s", [])
    assert "garbage" not in former.hvals(key)
    await store.fork("s", "other child")
    assert await seqs(store, "other child") == [1, 3, 4, 5, 9, 10, 14]
    former.hset(f"{{{prefix}:leased}}:meta", "expires", 1)
    listed = sorted((one.session_id, one.length) for one in await store.sessions())
    assert listed == [("child", 4), ("empty", 0), ("leased", 1), ("other child", 7), ("s", 7)]
    await store.delete("child")
    assert former.keys(f"{{{prefix}:child}}:*") == []
    assert "child" not in former.zrange(f"{prefix}:sessions", 0, -1)


async def test_what_cannot_be_carried_over_is_refused_and_what_was_lost_before_is_logged(
    store: Store, former: Any, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for call in (store.open("leased"), store.read("leased"), store.append("leased", entries(2, 2))):
        with pytest.raises(SessionInUse, match="pid 1 on recorder, with an earlier version"):
            await call
    assert former.hget(f"{{{prefix}:leased}}:meta", "expires") == str(FAR)
    former.delete(f"{{{prefix}:s}}:entries")
    length = former.hget(f"{{{prefix}:s}}:meta", "length")
    former.hdel(f"{{{prefix}:s}}:meta", "length")  # of a layout before that
    for call in (store.open("s"), store.read("s")):
        with pytest.raises(StoreError, match="commit 37ba2a6"):
            await call
    former.hset(f"{{{prefix}:s}}:meta", "length", length)
    assert await store.open("s") == Extent(0, 11)
    assert "7 of 7 messages are gone" in caplog.text
