"""The tests of this folder run on each server."""

import pytest

from tests.places import SERVERS, parameters


@pytest.fixture(scope="module", params=parameters(*SERVERS))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param
