"""What the parts of the store contract share: the fixtures a backend gives, and how a session is looked at whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.transcript import Entry

from .samples import differing

MakeStore = Callable[[], Awaitable[Store]]


class StoreFixtures:
    """The fixtures and settings of every part of the contract.

    Attributes:
        persistent: another store object on the same data shows the same sessions.
        archives: the store keeps what `replace` takes out of a history.
        examples: how many random histories are compared with the reference store's.
        tick: seconds between two changes that `sessions` must be able to tell apart.
    """

    persistent: ClassVar[bool] = True
    archives: ClassVar[bool] = True
    examples: ClassVar[int] = 25
    tick: ClassVar[float] = 0.02

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Makes one more, independent store object on the data of this test. Every backend gives its own."""
        raise NotImplementedError("give a `make_store` fixture: an async callable that makes a store on the same data")

    @pytest.fixture
    async def further(self, make_store: MakeStore) -> AsyncGenerator[MakeStore]:
        """`make_store`, with what it made closed after the test."""
        made: list[Store] = []

        async def make() -> Store:
            made.append(await make_store())
            return made[-1]

        yield make
        for store in made:
            await store.close()

    @pytest.fixture
    async def store(self, further: MakeStore) -> Store:
        """The store under test."""
        return await further()


@dataclass(frozen=True)
class Whole:
    """All that a store says of a session. Two of them are compared by `differs`, for entries are equal too easily."""

    extent: Extent
    history: list[Entry]
    archive: list[Entry]
    checkpoint: bytes | None

    def differs(self, other: Whole) -> str:
        """How this differs from another; empty if it does not."""
        if self.extent != other.extent:
            return f"{self.extent}, not {other.extent}"
        if self.checkpoint != other.checkpoint:
            return f"checkpoint is {_short(self.checkpoint)}, not {_short(other.checkpoint)}"
        if problem := differing(self.history, other.history):
            return f"history: {problem}"
        problem = differing(self.archive, other.archive)
        return f"archive: {problem}" if problem else ""


async def whole(store: Store, session_id: str = "s") -> Whole:
    """All that a store says of a session."""
    return Whole(
        await store.extent(session_id),
        await store.read(session_id),
        await store.archived(session_id),
        await store.load_checkpoint(session_id),
    )


def assert_same(found: Iterable[Entry], expected: Iterable[Entry]) -> None:
    """Fail, naming the first difference, unless two lists of entries are alike in everything."""
    problem = differing(found, expected)
    assert not problem, problem


async def assert_unknown(store: Store, session_id: str) -> None:
    """Fail unless a store knows nothing of a session."""
    found = await whole(store, session_id)
    assert not found.differs(Whole(Extent(), [], [], None)), found
    assert session_id not in [info.session_id for info in await store.sessions()]


def _short(data: bytes | None) -> str:
    return "none" if data is None else f"{data[:40]!r} ({len(data)} bytes)"
