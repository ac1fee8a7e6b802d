"""Calls that must fail."""

from collections.abc import Awaitable

import pytest

from amplifier_context_core import StoreError


async def refused(*calls: Awaitable[object], says: str | None = None, error: type[Exception] = StoreError) -> None:
    """Fail unless each call raises this error, with a text in which the pattern `says` is found."""
    for call in calls:
        with pytest.raises(error, match=says):
            await call
