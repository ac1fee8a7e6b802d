"""What every store must do, as tests to inherit: `StoreContract`, and `WriterContract` for stores that are shared.

A backend's test file gives the contract a way to make stores, and adds what is peculiar to that database::

    from amplifier_context_testing.store_contract import MakeStore, StoreContract, WriterContract


    class TestMyStore(StoreContract, WriterContract):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            async def make() -> Store:
                return MyStore(tmp_path)

            return make

Two more are for stores that are `Searchable` or `Checkable`: `SearchContract`, `CheckContract`; and
`SoakContract` runs for minutes: mark the class that inherits it as your slow tests are marked.

Each call of `make_store` makes one more store object on the same data, as another process would have it (a store in
memory gives the same object). What it made is closed after the test; data of one test must not be seen by another.

`amplifier_context_core.stores.protocol` says in words what is tested here; docs/extending.md holds a whole store.

Needs pytest, pytest-asyncio in its auto mode (``asyncio_mode = "auto"``) and hypothesis. Class attributes set what
differs (see `StoreFixtures`): `persistent`, `archives`, `examples`, `tick`.
"""

from __future__ import annotations

import sys

import pytest

_CLAIMS = (
    *("append", "cancellation", "checkpoint", "concurrency", "fixtures", "fork", "lifecycle", "listing", "read"),
    *("reference", "replace", "rewrite", "round_trip", "search", "session_ids", "single_writer", "verification"),
)
# Before they are imported: only then does pytest show what the two sides of a failed assert were.
_NAMES = [f"{__package__}.contract.{claims}" for claims in _CLAIMS]
pytest.register_assert_rewrite(*(name for name in _NAMES if name not in sys.modules))

from .contract.append import Appending  # noqa: E402 - see above, as for the following
from .contract.cancellation import Cancelled  # noqa: E402
from .contract.checkpoint import Checkpoints  # noqa: E402
from .contract.concurrency import AtTheSameTime  # noqa: E402
from .contract.fixtures import MakeStore, StoreFixtures  # noqa: E402
from .contract.fork import Forking  # noqa: E402
from .contract.lifecycle import Living  # noqa: E402
from .contract.listing import Listing  # noqa: E402
from .contract.read import Reading  # noqa: E402
from .contract.reference import LikeTheReference, LikeTheReferenceForLong  # noqa: E402
from .contract.replace import Replacing  # noqa: E402
from .contract.rewrite import Rewriting  # noqa: E402
from .contract.round_trip import Faithful  # noqa: E402
from .contract.search import Searching  # noqa: E402
from .contract.session_ids import Names  # noqa: E402
from .contract.single_writer import OneWriter  # noqa: E402
from .contract.verification import Checking  # noqa: E402

__all__ = [
    "CheckContract",
    "MakeStore",
    "SearchContract",
    "SoakContract",
    "StoreContract",
    "StoreFixtures",
    "WriterContract",
]


class StoreContract(
    Appending,
    Reading,
    Replacing,
    Rewriting,
    Checkpoints,
    Forking,
    Listing,
    Names,
    Living,
    Faithful,
    Cancelled,
    AtTheSameTime,
    LikeTheReference,
):
    """Holds a store to `amplifier_context_core.stores.protocol`. Inherit it and give `make_store`; see the module."""


class WriterContract(OneWriter):
    """Two store objects on one session: one writes, the other is told who. Inherit it beside `StoreContract`."""


class SearchContract(Searching):
    """Finds messages by words. Inherit it for a store that is `Searchable`."""


class CheckContract(Checking):
    """Looks for damage, and finds none where there is none. Inherit it for a store that is `Checkable`."""


class SoakContract(LikeTheReferenceForLong):
    """Very many random histories, others in every run. Inherit it in a class of its own, marked as slow."""
