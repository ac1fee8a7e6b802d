"""Stores that replace messages and cannot erase yet their text: a file or a server refuses the last step."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores.sqlite import secure_erase
from amplifier_context_servers.postgres_server.pool import PostgresPool
from amplifier_context_servers.redis_server.client import RedisClient
from amplifier_context_servers.redis_server.driver import RedisDriver


class Hindrance:
    """Keeps each store from erasing what it has replaced, and counts how often it tried."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.tries = 0
        self._is_on = False
        self._hinder(secure_erase, "_vacuum", NotErased("not erased yet"))
        self._hinder(PostgresPool, "run_alone", StoreError("the vacuum was refused"))
        refused = StoreError("the rewrite was refused")
        self._hinder(RedisClient, "_send", refused, only=[("BGREWRITEAOF",)])  # open drivers have bound `call`
        rewrites = RedisDriver._is_rewriting_aof  # pyright: ignore[reportPrivateUsage]

        async def rewriting(driver: RedisDriver) -> bool:
            return not self._is_on and await rewrites(driver)  # a rewrite of another test would do

        patch.setattr(RedisDriver, "_is_rewriting_aof", rewriting)
        patch.setattr(RedisClient, "has_aof", property(lambda _: True, lambda *_: None), raising=False)

    @contextmanager
    def on(self) -> Generator[None]:
        self._is_on = True
        yield
        self._is_on = False

    def _hinder(self, owner: Any, name: str, problem: Exception, only: object = None) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            if only is not None and only not in arguments:
                return real(*arguments, **more)
            self.tries += 1
            if self._is_on:
                raise problem
            return real(*arguments, **more)

        self._patch.setattr(owner, name, call)
