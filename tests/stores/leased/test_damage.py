"""Rows on a server that were damaged by hand: they are left out and reported, and their session is not changed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Repair
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.places import MARKS, PARAMETERS
from tests.stores.servers import REDIS, ask

LEFT = [*entries(1, 1), *entries(3, 6)]
SECOND: dict[str, list[Any]] = {  # the second message of session `s`
    "postgresql": ['UPDATE entries SET message = \'{"role": "us\' WHERE seq = 2'],
    "redis": [
        ("e:1", garbage) for garbage in ('2 1 7 \n{"role": "us', "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}', None)
    ],
}
FOUND: dict[str, list[Any]] = {  # with what is found of it
    "postgresql": [
        ("DELETE FROM entries WHERE seq = 2", "5 of them are there"),
        ("UPDATE sessions SET length = 5", "5 of them are there, and 1 beyond its end"),
        ("UPDATE sessions SET last_seq = 4", "it holds m6, and its record says that no seq above 4"),
        ("UPDATE archive SET message = 'no JSON'", "m7 of the archive is damaged"),
    ],
    "redis": [
        (("length", 8), "the message at index 6 is gone"),
        (("last_seq", 4), "it holds m6, and its record says that no seq above 4"),
        (("e:2", '9 1 7 \n{"role": "user", "content": "x"}'), "m9 at index 2 is not found by its seq"),
        (("a:0", "garbage"), "of the archive is damaged"),
    ],
}


def harm(damage: Any, request: pytest.FixtureRequest, backend: str) -> None:
    """Damage a row: by a statement, or by a field of the session's key, which None removes."""
    name = request.getfixturevalue(PARAMETERS[backend])
    if isinstance(damage, str):
        ask(damage, name)
        return
    key, (field, value) = f"{{{name}:s}}:session", damage
    with redis.Redis.from_url(REDIS) as client:
        assert client.hdel(key, field) if value is None else not client.hset(key, field, value)


def each(damages: dict[str, list[Any]]) -> pytest.MarkDecorator:
    cases = [pytest.param(name, one, marks=MARKS[name]) for name, listed in damages.items() for one in listed]
    return pytest.mark.parametrize(("backend", "damage"), cases, indirect=["backend"])


@each(SECOND)
async def test_a_damaged_message_is_left_out_and_reported_once_and_its_session_is_not_changed(
    store: LeasedStore, backend: str, damage: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    repairs: list[Repair] = []
    await store.append("s", entries(1, 6))
    await store.open("s", repairs.append)
    harm(damage, request, backend)
    assert await store.verify("s") != []
    for _ in range(2):
        assert_same(await store.read("s"), LEFT)
    assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
    for change in (store.append("s", entries(7, 8)), store.replace("s", 2, []), store.rewrite("s", entries(1, 1))):
        with pytest.raises(StoreError, match="damaged messages, so nothing was written"):
            await change
    await store.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert_same(await store.read("s"), LEFT)  # a reader leaves it where it is
    assert "1 damaged" in caplog.text
    assert "content" not in caplog.text
    assert await store.extent("s") == Extent(6, 6)
    await store.delete("s")
    assert await store.sessions() == []


@each(FOUND)
async def test_what_does_not_fit_together_is_found(
    store: LeasedStore, backend: str, damage: tuple[Any, str], request: pytest.FixtureRequest
) -> None:
    await store.append("s", entries(1, 7))
    await store.replace("s", 6, [])
    harm(damage[0], request, backend)
    assert damage[1] in (await store.verify("s"))[0]
