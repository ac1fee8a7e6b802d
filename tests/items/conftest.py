"""Hooks are registered for a whole process; each test of this folder begins and ends without any."""

from collections.abc import Iterator

import pytest

from amplifier_context_core.items import HookRegistry


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    HookRegistry.clear()
    yield
    HookRegistry.clear()
