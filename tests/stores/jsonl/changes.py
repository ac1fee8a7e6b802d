"""Each kind of change of a session, and a session to change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from amplifier_context_core.stores import Store
from amplifier_context_testing.contract.samples import entries, entry

Change = Callable[[Store], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "append": lambda store: store.append("s", entries(14, 14)),
    "batch": lambda store: store.append("s", entries(20, 24)),
    "replace": lambda store: store.replace("s", 6, [*entries(20, 21), entries(8, 8)[0]]),
    "replace into the checkpoint": lambda store: store.replace("s", 2, entries(20, 20)),
    "clear": lambda store: store.replace("s", 0, []),
    "rewrite": lambda store: store.rewrite("s", [entry(5, "rewritten"), entry(11, "rewritten")]),
    "recount": lambda store: store.rewrite("s", [one._replace(tokens=10**9) for one in entries(3, 5)]),
    "recount in place": lambda store: store.rewrite("s", [one._replace(tokens=1) for one in entries(3, 8)]),
    "checkpoint": lambda store: store.save_checkpoint("s", 7, b"seven"),
}


async def begin(store: Store) -> None:
    """Begin a session with a bit of everything."""
    await store.append("s", entries(1, 10))
    await store.replace("s", 9, entries(11, 12))
    await store.append("s", entries(13, 13))
    await store.replace("s", 10, [])
    await store.save_checkpoint("s", 4, b"four")
