"""Shared by all tests: where the recorded transcripts are, how hard hypothesis looks, what may not be skipped."""

import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

from amplifier_context_core.history import redactions
from amplifier_context_core.view import shared_cache
from tests import places

DATA = Path(os.environ.get("AMPLIFIER_CONTEXT_DATA") or Path(__file__).parents[2] / "shared" / "data")

# Marks of tests that must run in CI.
REQUIRED = ("kernel", *(mark.name for mark in places.MARKS.values()))

# A sync of a file in memory is free, and most tests are not about syncs. A soak uses the disk, and so does `disk`.
MEMORY = Path("/dev/shm")
ENOUGH = 2_000_000_000  # bytes; a container often has 64 MB there

# Conversations are large on purpose, and machines are slow at times: neither says anything about the code.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

# A few examples, always the same, in every run; fewer in `make check`, many new ones with `make soak`.
settings.register_profile(
    "fast",
    max_examples=8 if os.environ.get("AMPLIFIER_TEST_QUICK") else 20,
    derandomize=True,
    deadline=None,
    suppress_health_check=QUIET,
    phases=(Phase.explicit, Phase.generate),  # shrinking can take minutes: `make soak` does it
)
settings.register_profile("soak", max_examples=3_000, deadline=None, suppress_health_check=QUIET)


def soaking(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "soak"


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is imported: a test takes its settings when it is defined."""
    settings.load_profile("soak" if soaking(config) else "fast")
    if not soaking(config) and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # the parent of all `tmp_path`; --basetemp wins


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What hypothesis draws examples for is the soak's too: the same tests, more examples."""
    if soaking(config):
        for item in items:
            if item.path.parent.name == "laws" or is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker(pytest.mark.soak)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: garbage is looked for among what tests make."""
    gc.freeze()


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of the recorded transcripts, which are not in the repository."""
    if not any(DATA.glob("*.jsonl.gz")):
        pytest.skip(f"no recorded transcripts in {DATA.name}/ (AMPLIFIER_CONTEXT_DATA names their folder)")
    return DATA


@pytest.fixture
def disk() -> Generator[Path]:
    """A folder on a disk, where a sync is not free."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def empty_shared_cache() -> None:
    """Sessions of one process find each other's checkpoints: no test may depend on which ran before it."""
    shared_cache.clear()


@pytest.fixture(scope="session", autouse=True)
def shipped_cost() -> Generator[redactions.Cost]:
    """The cost of a trace of erased text as shipped, a third of a second of a core. Tests hash in a millisecond."""
    shipped = redactions.COST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redactions, "COST", (4, 8, 1))
        yield shipped


def pytest_sessionfinish() -> None:
    """Servers are left as they were found."""
    places.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test of the kernel or of a server that skips tests nothing: in CI that is a failure."""
    report = yield
    required = any(item.get_closest_marker(name) for name in REQUIRED)
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true" and required:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; in CI it must run\n{report.longrepr}"
    return report
