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

from .contract.concurrency import Cancellation, Concurrency
from .contract.edits import Editing
from .contract.fixtures import MakeStore, StoreFixtures
from .contract.history import Appending
from .contract.optional import CheckContract, SearchContract, VectorContract
from .contract.reference import MatchesReference, SoakContract
from .contract.sessions import Sessions
from .contract.writers import WriterContract

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


class StoreContract(Appending, Editing, Sessions, Cancellation, Concurrency, MatchesReference):
    """Tests a store against `amplifier_context_core.stores.protocol`. Inherit it and override `make_store`."""
