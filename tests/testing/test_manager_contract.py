"""The contract of context managers: our modules keep it, a list without a limit does not."""

from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

import amplifier_context_persistent as persistent
import amplifier_context_simple as simple
import amplifier_context_summary as summary
from amplifier_context_testing.fakes import mount_list
from amplifier_context_testing.manager_contract import ManagerContract

pytestmark = pytest.mark.kernel


class TestOurs(ManagerContract):
    @pytest.fixture(autouse=True, params=[simple, persistent, summary], ids=lambda module: module.MODULE)
    def mounted(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.module = request.param
        self.urls = (f"jsonl:{tmp_path / str(number)}" for number in count())  # a store for each session

    async def mount(self, coordinator: Any, config: dict[str, Any]) -> Any:
        store = {"store": next(self.urls)} if self.module is persistent else {}
        return await self.module.mount(coordinator, {**config, **store})


class TestUnlimited(ManagerContract):
    """A list without a limit fails these claims and no other."""

    FAILS: ClassVar = (
        "test_every_request_of_a_long_session_is_one_that_providers_take",
        "test_a_call_that_was_never_answered_harms_no_request",
        "test_a_history_that_was_handed_to_a_new_session_goes_on_there",
        "test_a_compaction_is_announced",
    )

    @pytest.fixture(autouse=True)
    def failing(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in self.FAILS:
            request.applymarker(pytest.mark.xfail(raises=AssertionError))

    async def mount(self, coordinator: Any, config: dict[str, Any]) -> Any:
        return await mount_list(coordinator, config)
