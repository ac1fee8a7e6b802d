"""The store contract itself: it asks every method, and a store that breaks it fails the claim that it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing.store_contract import StoreContract, WriterContract


class AppendsOneByOne(MemoryStore):
    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await super().append(session_id, [entry])
            await asyncio.sleep(0)


class ArchivesWhatMoves(MemoryStore):
    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        await super().replace(session_id, keep, [])
        await super().replace(session_id, keep, entries)


class Contract(StoreContract):
    examples = 12


Claim = Callable[[Contract, Store], Awaitable[None]]


async def cancelled_append(contract: Contract, store: Store) -> None:
    async def further() -> Store:
        return store

    await contract.test_a_cancelled_append_is_there_whole_or_not_at_all(store, further, 0)


CLAIMS: list[tuple[type[MemoryStore], Claim]] = [
    (AppendsOneByOne, cancelled_append),
    (ArchivesWhatMoves, Contract.test_entries_of_the_replaced_range_may_move_and_are_not_archived),
    (ArchivesWhatMoves, Contract.test_any_history_is_what_the_reference_store_makes_of_it),
]


@pytest.mark.parametrize(("broken", "claim"), CLAIMS)
async def test_a_store_fails_the_claim_that_it_breaks(broken: type[MemoryStore], claim: Claim) -> None:
    await claim(Contract(), MemoryStore())
    with pytest.raises(AssertionError):
        await claim(Contract(), broken())


def test_ids_are_tried_on_every_method_that_takes_one() -> None:
    from amplifier_context_testing.contract.sessions import ASKED  # after the contract, which prepares its asserts

    asked = {name.partition(" ")[0] for name in ASKED}
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert methods - asked == {"release", "sessions", "close"}


def test_every_claim_is_an_own_sentence() -> None:
    """A class that inherits two parts must not have one test hide another."""
    names = [
        name
        for contract in (StoreContract, WriterContract)
        for part in contract.__mro__[1:]
        for name in vars(part)
        if name.startswith("test_")
    ]
    assert len(names) > 40
    assert len(set(names)) == len(names)
