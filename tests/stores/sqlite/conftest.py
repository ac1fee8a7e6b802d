"""A database of its own for every test of the SQLite store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from amplifier_context_core.stores.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, busy=0.1)
    yield store
    await store.close()


@pytest.fixture
async def other(path: Path) -> AsyncGenerator[SqliteStore]:
    """Another store on the same file, as another process would have it."""
    store = SqliteStore(path)
    yield store
    await store.close()
