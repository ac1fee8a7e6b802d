"""Shared by the claim groups of the store contract: the fixtures of a backend, and the whole content of a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.entry import Entry

from .samples import differing

MakeStore = Callable[[], Awaitable[Store]]


class StoreFixtures:
    """The fixtures and settings of every claim group.

    Attributes:
        persistent: messages are kept as JSON; what JSON cannot hold is refused.
        tick: seconds between two changes that `sessions` must order.
    """

    persistent: ClassVar[bool] = True
    archives: ClassVar[bool] = True
    examples: ClassVar[int] = 25
    tick: ClassVar[float] = 0.02

    @pytest.fixture
    def make_store(self) -> MakeStore:
        pytest.fail("give a `make_store` fixture: an async callable that makes a store on the same data", pytrace=False)

    @pytest.fixture
    async def further(self, make_store: MakeStore) -> AsyncGenerator[MakeStore]:
        """Yield `make_store`; close its stores after the test."""
        made: list[Store] = []

        async def make() -> Store:
            made.append(await make_store())
            return made[-1]

        yield make
        for store in made:
            await store.close()

    @pytest.fixture
    async def store(self, further: MakeStore) -> Store:
        return await further()


@dataclass(frozen=True)
class Whole:
    """All data that a store returns for a session. Compare two with `differs`: `==` of entries ignores some fields."""

    extent: Extent
    history: list[Entry]
    archive: list[Entry]
    checkpoint: bytes | None

    def differs(self, other: Whole) -> str:
        """Return the first difference from another; empty if there is none."""
        if self.extent != other.extent:
            return f"{self.extent}, not {other.extent}"
        if self.checkpoint != other.checkpoint:
            return f"checkpoint is {_short(self.checkpoint)}, not {_short(other.checkpoint)}"
        if problem := differing(self.history, other.history):
            return f"history: {problem}"
        problem = differing(self.archive, other.archive)
        return f"archive: {problem}" if problem else ""


async def whole(store: Store, session_id: str = "s") -> Whole:
    return Whole(
        await store.extent(session_id),
        await store.read(session_id),
        await store.archived(session_id),
        await store.load_checkpoint(session_id),
    )


def assert_same(found: Iterable[Entry], expected: Iterable[Entry]) -> None:
    """Fail with the first difference unless two lists of entries are equal in every field."""
    problem = differing(found, expected)
    assert not problem, problem


async def assert_unknown(store: Store, session_id: str) -> None:
    """Fail unless a store has no data of a session."""
    found = await whole(store, session_id)
    assert not found.differs(Whole(Extent(), [], [], None)), found
    assert session_id not in [info.session_id for info in await store.sessions()]


def _short(data: bytes | None) -> str:
    return "none" if data is None else f"{data[:40]!r} ({len(data)} bytes)"
