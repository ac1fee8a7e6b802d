"""A folder of its own for every test of the JSONL store."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.stores.jsonl.files import fast_folder


@pytest.fixture
def root() -> Generator[Path]:
    with fast_folder() as made:
        yield made
