"""The tests of this folder run on PostgreSQL."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def backend() -> str:
    return "postgresql"
