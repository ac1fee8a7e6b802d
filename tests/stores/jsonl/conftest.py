"""A folder of its own for every test of the JSONL store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from amplifier_context_core.stores.jsonl.store import JsonlStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
async def store(root: Path) -> AsyncGenerator[JsonlStore]:
    store = JsonlStore(root)
    yield store
    await store.close()
