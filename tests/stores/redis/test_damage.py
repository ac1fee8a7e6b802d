"""Rows that were damaged by hand, and sessions that were evicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Store
from amplifier_context_testing.contract.samples import entries
from tests.stores.server_contract_damage import DamageContract

pytestmark = pytest.mark.redis


class TestDamage(DamageContract):
    @pytest.fixture(params=['2 1 7 \n{"role": "us', "", "2 1 x \n{}", '2 1 7 {"a\n{"role": "user"}', None], ids=repr)
    def harm(self, request: pytest.FixtureRequest, client: Any, prefix: str) -> Callable[[], object]:
        key, garbage = f"{{{prefix}:s}}:session", request.param
        return lambda: client.hdel(key, "e:1") if garbage is None else client.hset(key, "e:1", garbage)

    @pytest.mark.parametrize(
        ("field", "value", "text"),
        [
            ("length", 6, "the message at index 4 is gone"),
            ("last_seq", 2, "it holds m4, and its record says that no seq above 2"),
            ("e:2", '9 1 7 \n{"role": "user", "content": "x"}', "m9 at index 2 is not found by its seq"),
            ("a:0", "garbage", "of the archive is damaged"),
        ],
    )
    async def test_what_does_not_fit_together_is_found(
        self, store: Store, client: Any, prefix: str, field: str, value: Any, text: str
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        client.hset(f"{{{prefix}:s}}:session", field, value)
        problems = await store.verify("s")  # type: ignore[attr-defined]
        assert text in problems[0]


class TestLostSessions:
    """A session is one key: it is there or it is gone."""

    async def test_a_session_that_was_evicted_is_lost_and_goes_on_in_a_fork_of_what_memory_held(
        self, store: Store, client: Any, prefix: str
    ) -> None:
        manager = ContextManager(
            load_config({"token_counter": "heuristic", "on_conflict": "fork"}), session_id="s", store=store
        )
        await manager.add_message({"role": "user", "content": "question"})
        client.delete(f"{{{prefix}:s}}:session")
        await manager.add_message({"role": "user", "content": "go on"})
        (fork,) = [info.session_id for info in await store.sessions()]
        assert fork != "s"
        assert [one.message["content"] for one in await store.read(fork)] == ["question", "go on"]
        await manager.close()
