"""A folder of its own for every test of the JSONL store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.stores.jsonl.files import fast_folder


@pytest.fixture
def root() -> Generator[Path]:
    with fast_folder() as made:
        yield made


@pytest.fixture
async def store(root: Path) -> AsyncGenerator[JsonlStore]:
    store = JsonlStore(root)
    yield store
    await store.close()
