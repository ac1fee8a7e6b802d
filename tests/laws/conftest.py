"""How hard hypothesis looks: a few examples, always the same, in every run; many new ones with `make soak`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

# Conversations are large on purpose, and machines are slow at times: neither says anything about the code.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

settings.register_profile(
    "fast",
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=QUIET,
    phases=(Phase.explicit, Phase.generate),  # shrinking can take minutes: `make soak` does it
)
settings.register_profile("soak", max_examples=3_000, deadline=None, suppress_health_check=QUIET)


def soaking(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "soak"


def pytest_configure(config: pytest.Config) -> None:
    """Before the laws are imported: a test takes its settings when it is defined."""
    settings.load_profile("soak" if soaking(config) else "fast")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The laws are the soak's too: the same tests, more examples."""
    if soaking(config):
        for item in items:
            if item.path.parent.name == "laws":
                item.add_marker(pytest.mark.soak)
