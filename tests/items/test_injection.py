"""Arguments by annotation: what a function asks for, and when it gets it."""

from __future__ import annotations

import functools
from typing import Any, Optional

import pytest

from amplifier_context_core.items import ContextPool, ContextQueue
from amplifier_context_core.items.injection import active, injected, offering, requested


class MyPool(ContextPool[str]):
    """A pool of its own kind."""


def asks(pool: ContextPool[Any], queue: ContextQueue | None = None, other: int = 0) -> None: ...


def asks_in_words(pool: "Optional[ContextPool[int]]", text: "str") -> "ContextQueue[Any]":  # noqa: UP037, UP045
    raise NotImplementedError


def unresolvable(pool: ContextPool, other: NoSuchName) -> None: ...  # noqa: F821 # type: ignore[name-defined]


def not_ours(either: ContextPool | ContextQueue, any: Any, anything: object) -> None: ...


def test_a_parameter_asks_by_its_annotation() -> None:
    assert requested(asks) == {"pool": ContextPool, "queue": ContextQueue}
    assert requested(asks_in_words) == {"pool": ContextPool}
    assert requested(functools.partial(asks, other=1)) == {"pool": ContextPool, "queue": ContextQueue}


@pytest.mark.parametrize("function", [unresolvable, not_ours, len])
def test_what_is_not_clear_asks_for_nothing(function: Any) -> None:
    assert requested(function) == {}


def test_a_subclass_is_only_injected_where_the_session_has_one() -> None:
    def asks_for_mine(pool: MyPool) -> None: ...

    mine = MyPool()
    with offering(ContextPool()):
        assert injected(asks_for_mine, (), {}, active()) == {}
    with offering(mine):
        assert injected(asks_for_mine, (), {}, active()) == {"pool": mine}
        assert injected(asks, (), {}, active()) == {"pool": mine}
