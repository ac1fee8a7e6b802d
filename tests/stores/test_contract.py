"""The store contract itself: it can be inherited anywhere, asks every method, and is not fooled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from amplifier_context_core.stores import Store
from amplifier_context_testing.store_contract import StoreContract, WriterContract

PROJECT = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
HYPOTHESIS = """
from hypothesis import Phase, settings

settings.register_profile("no shrinking", phases=(Phase.explicit, Phase.generate))
settings.load_profile("no shrinking")
"""
OUTSIDE = """
import asyncio
import pytest
from amplifier_context_core.stores import MemoryStore
from amplifier_context_testing.store_contract import StoreContract


class Sound(MemoryStore):
    pass


class AppendsOneByOne(MemoryStore):
    async def append(self, session_id, entries):
        for entry in entries or [None]:
            await super().append(session_id, [entry] if entry else [])
            await asyncio.sleep(0)


class ArchivesWhatMoves(MemoryStore):
    async def replace(self, session_id, keep, entries):
        await super().replace(session_id, keep, [])
        await super().replace(session_id, keep, entries)


class Contract(StoreContract):
    persistent = False
    examples = 12

    @pytest.fixture
    def make_store(self):
        only = self.kind()

        async def make():
            return only

        return make


class TestSound(Contract):
    kind = Sound





class TestAppendsOneByOne(Contract):
    kind = AppendsOneByOne


class TestArchivesWhatMoves(Contract):
    kind = ArchivesWhatMoves
"""


def claims_failed_outside(folder: Path) -> dict[str, set[str]]:
    """Return the claims that stores outside this repository fail, by the store."""
    (folder / "pytest.ini").write_text(PROJECT)
    (folder / "conftest.py").write_text(HYPOTHESIS)
    (folder / "test_outside.py").write_text(OUTSIDE)
    chosen = "cancelled_append_is_there or move_and_are_not or any_history"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", "-k", chosen],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            _, store, claim = rest.split(" ")[0].split("::")
            found.setdefault(store, set())
            if outcome != "PASSED":
                found[store].add(claim.partition("[")[0])
    assert found, done.stdout + done.stderr
    return found


ANY_HISTORY = "test_any_history_is_what_the_reference_store_makes_of_it"
BROKEN = {
    "TestSound": set[str](),
    "TestAppendsOneByOne": {"test_a_cancelled_append_is_there_whole_or_not_at_all"},
    "TestArchivesWhatMoves": {"test_entries_of_the_replaced_range_may_move_and_are_not_archived", ANY_HISTORY},
}


def test_a_store_of_another_project_fails_the_claims_that_it_breaks(tmp_path: Path) -> None:
    """One test, because the inner run of pytest takes seconds, and each process of the suite would make its own."""
    failed = claims_failed_outside(tmp_path)
    assert failed["TestSound"] == set()
    assert {store: claims & failed[store] for store, claims in BROKEN.items()} == BROKEN


def test_ids_are_tried_on_every_method_that_takes_one() -> None:
    from amplifier_context_testing.contract.sessions import ASKED  # after the contract, which prepares its asserts

    asked = {name.partition(" ")[0] for name in ASKED}
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert methods - asked == {"release", "sessions", "close"}


def test_every_claim_is_an_own_sentence() -> None:
    """A class that inherits two parts must not have one test hide another."""
    for contract in (StoreContract, WriterContract):
        seen: dict[str, type] = {}
        for part in contract.__mro__:
            for name in vars(part):
                if name.startswith("test_"):
                    assert name not in seen, f"{name} is in {part.__name__} and in {seen[name].__name__}"
                    seen[name] = part
        assert len(seen) > 10
    both = {name for name in dir(StoreContract) if name.startswith("test_")}
    assert not both & {name for name in dir(WriterContract) if name.startswith("test_")}
