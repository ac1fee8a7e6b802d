"""Shared by the laws."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings of full budgets are of no interest here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
