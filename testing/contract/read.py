"""The store contract, reading: ranges by index, entries by seq."""

from __future__ import annotations

from amplifier_context_core.stores import Store

from .fixtures import StoreFixtures, assert_same
from .samples import differing, entries, entry

RANGES = [
    (0, None),
    (0, 0),
    (0, 1),
    (2, 5),
    (5, 2),
    (3, 3),
    (9, 10),
    (9, None),
    (10, None),
    (10, 20),
    (4, 10**9),
    (10**9, None),
    (10**9, 10**9 + 1),
    (-1, None),
    (-3, None),
    (-3, 9),
    (-10, None),
    (-20, None),
    (-(10**9), 4),
]  # of a history of ten


class Reading(StoreFixtures):
    """Ranges are indices; seqs are identities."""

    async def test_a_range_is_read_as_python_slices(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.append("s", entries(5, 10))
        for start, stop in RANGES:
            problem = differing(await store.read("s", start, stop), entries(1, 10)[start:stop])
            assert not problem, f"from {start} to {stop}: {problem}"

    async def test_find_answers_in_the_order_of_the_history(self, store: Store) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, [entry(6), entry(4), entry(8)])
        assert_same(await store.find("s", [8, 4, 1, 6, 4]), [entries(1, 1)[0], entry(6), entry(4), entry(8)])

    async def test_find_takes_any_number_of_seqs(self, store: Store) -> None:
        await store.append("s", entries(1, 40))
        assert_same(await store.find("s", range(20, 90_000)), entries(20, 40))
