"""The contract of stores as tests to inherit: `StoreContract`, and `WriterContract` for shared stores.

The test file of a backend inherits the contract, overrides `make_store`, and adds tests of that backend::

    from amplifier_context_testing.store_contract import MakeStore, StoreContract, WriterContract


    class TestMyStore(StoreContract, WriterContract):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            async def make() -> Store:
                return MyStore(tmp_path)

            return make

`SearchContract`, `CheckContract` and `VectorContract` belong to `Searchable`, `Checkable` and `KeepsVectors`.
`SoakContract` runs for minutes: mark the class that inherits it as a slow test.

Each call of `make_store` makes another store object on the same data, as another process would (a store in memory
returns the same object). The contract closes these objects after the test. Each test needs data of its own.

`amplifier_context_core.stores.protocol` describes in words what is tested here; examples/store has a complete store.

Needs pytest, pytest-asyncio in its auto mode (``asyncio_mode = "auto"``) and hypothesis. Class attributes are the
settings (see `StoreFixtures`): `persistent`, `archives`, `examples`, `tick`.
"""

from __future__ import annotations

import sys

import pytest

_CLAIMS = (
    *("append", "cancellation", "checkpoint", "concurrency", "fixtures", "fork", "lifecycle", "listing", "read"),
    *("reference", "replace", "rewrite", "round_trip", "search", "session_ids", "single_writer", "vectors"),
    "verification",
)
# Before they are imported: only then does pytest show both sides of a failed assert.
_NAMES = [f"{__package__}.contract.{claims}" for claims in _CLAIMS]
pytest.register_assert_rewrite(*(name for name in _NAMES if name not in sys.modules))

from .contract.append import Appending  # noqa: E402 - see above, as for the following
from .contract.cancellation import Cancellation  # noqa: E402
from .contract.checkpoint import Checkpoints  # noqa: E402
from .contract.concurrency import Concurrency  # noqa: E402
from .contract.fixtures import MakeStore, StoreFixtures  # noqa: E402
from .contract.fork import Forking  # noqa: E402
from .contract.lifecycle import Lifecycle  # noqa: E402
from .contract.listing import Listing  # noqa: E402
from .contract.read import Reading  # noqa: E402
from .contract.reference import MatchesReference, MatchesReferenceForLong  # noqa: E402
from .contract.replace import Replacing  # noqa: E402
from .contract.rewrite import Rewriting  # noqa: E402
from .contract.round_trip import RoundTrips  # noqa: E402
from .contract.search import Searching  # noqa: E402
from .contract.session_ids import SessionIds  # noqa: E402
from .contract.single_writer import SingleWriter  # noqa: E402
from .contract.vectors import KeepingVectors  # noqa: E402
from .contract.verification import Checking  # noqa: E402

__all__ = [
    "CheckContract",
    "MakeStore",
    "SearchContract",
    "SoakContract",
    "StoreContract",
    "StoreFixtures",
    "VectorContract",
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
    SessionIds,
    Lifecycle,
    RoundTrips,
    Cancellation,
    Concurrency,
    MatchesReference,
):
    """Tests a store against `amplifier_context_core.stores.protocol`. Inherit it and override `make_store`."""


class WriterContract(SingleWriter):
    """Two store objects on one session: one writes, the other is refused. Inherit it beside `StoreContract`."""


class SearchContract(Searching):
    """Tests finding messages by words. Inherit it for a store that is `Searchable`."""


class VectorContract(KeepingVectors):
    """Tests that vectors go with their messages. Inherit it for a store that `KeepsVectors`."""


class CheckContract(Checking):
    """Tests that verification reports no damage of undamaged sessions. Inherit it for a store that is `Checkable`."""


class SoakContract(MatchesReferenceForLong):
    """Tests very many random histories, different in every run. Inherit it in a class of its own, marked as slow."""
