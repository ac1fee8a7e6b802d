"""When files are synced: once an append, together for appends that come together."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent
from amplifier_context_core.stores.jsonl import engine as jsonl_engine
from amplifier_context_core.stores.jsonl import file_ops
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import Files, reopen


class Counted:
    """Counts the syncs of the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        real = file_ops._sync  # pyright: ignore[reportPrivateUsage]

        def sync(descriptor: int) -> None:
            self.syncs += 1
            time.sleep(0.001)  # like a disk; meanwhile other appends arrive
            real(descriptor)

        monkeypatch.setattr(file_ops, "_sync", sync)


async def test_an_append_is_one_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    counted = Counted(monkeypatch)
    for seq in range(2, 12):
        await store.append("s", entries(seq, seq))
    assert counted.syncs == 10
    await store.append("s", entries(12, 60))
    assert counted.syncs == 12  # the journal is written first
    await store.close()


async def test_appends_at_the_same_time_share_an_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    counted = Counted(monkeypatch)

    async def talk(number: int) -> None:
        for step in range(10):
            seq = 100 * (number + 1) + step
            await store.append("s", entries(seq, seq))

    await asyncio.gather(*(talk(number) for number in range(16)))
    assert counted.syncs <= 25
    assert (await store.extent("s")).length == 161
    await store.close()


async def test_sessions_written_together_are_synced_two_at_a_time_on_a_quick_disk_and_all_at_once_on_a_slow_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_engine, "_SLOW_SYNC", 0.02)
    store = JsonlStore(root)
    names = [f"s{number}" for number in range(16)]
    for name in names:
        await store.append(name, entries(1, 1))
    now = most = syncs = 0
    seconds = 0.0
    counting = threading.Lock()

    def sync(descriptor: int) -> None:
        nonlocal now, most, syncs
        with counting:
            now, syncs = now + 1, syncs + 1
            most = max(most, now)
        time.sleep(seconds)
        with counting:
            now -= 1

    monkeypatch.setattr(file_ops, "_sync", sync)
    found: list[int] = []
    for seq, takes in ((2, 0.0), (3, 0.03), (4, 0.03), (5, 0.0), (6, 0.0)):
        seconds = takes
        most = syncs = 0
        await asyncio.gather(*(store.append(name, entries(seq, seq)) for name in names))
        assert syncs == 16
        found.append(most)
    assert found[0] <= 2  # a disk counts as fast at first
    assert found[1] == 2  # now known as slow
    assert found[2] > 2  # more of them than on a quick disk; how many depends on the machine
    assert found[4] <= 2  # now known as fast again
    await store.close()


async def test_sessions_written_together_are_on_disk_though_there_is_no_thread_to_be_had(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = JsonlStore(root)
    names = [f"s{number}" for number in range(4)]
    await asyncio.gather(*(store.append(name, entries(1, 1)) for name in names))
    counted = Counted(monkeypatch)
    monkeypatch.setattr(jsonl_engine.ThreadPoolExecutor, "submit", submit)
    await asyncio.gather(*(store.append(name, entries(2, 2)) for name in names))
    assert counted.syncs == 4
    await asyncio.gather(*(store.append(name, entries(3, 3)) for name in names))
    assert [(await store.extent(name)).length for name in names] == [3] * 4
    await store.close()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice on files")
@pytest.mark.parametrize("durability", ["fsync", "flush", "none"])
async def test_writeback_of_many_sessions_starts_at_once_if_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    store = JsonlStore(root, durability=durability)
    names = [f"s{number}" for number in range(4)]
    for name in names:
        await store.append(name, entries(1, 1))
    await asyncio.gather(*(store.extent(name) for name in names))
    sizes = {name: Files(root, name).main.stat().st_size for name in names if durability == "fsync"}
    begun: dict[str, tuple[int, int]] = {}

    def advise(descriptor: int, offset: int, length: int, advice: int) -> None:
        begun[Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.name] = (offset, length)
        raise OSError(errno.EINVAL, "no such advice")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    await asyncio.gather(*(store.append(name, entries(2, 2)) for name in names))
    after = {name: Files(root, name).main.stat().st_size for name in sizes}
    assert begun == {name: (size, after[name] - size) for name, size in sizes.items()}
    assert [(await store.extent(name)).length for name in names] == [2] * 4
    await store.append(names[0], entries(3, 3))
    assert begun.get(names[0]) == ((begun and (sizes[names[0]], after[names[0]] - sizes[names[0]])) or None)
    await store.close()


@pytest.mark.parametrize("slow", [0.0, 1.0], ids=["all at once", "two at a time"])
async def test_of_sessions_synced_together_one_that_fails_stops_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch, slow: float
) -> None:
    monkeypatch.setattr(jsonl_engine, "_SLOW_SYNC", slow)
    store = JsonlStore(root)
    names = [f"s{number}" for number in range(8)]
    await asyncio.gather(*(store.append(name, entries(1, 1)) for name in names))
    real = file_ops._sync  # pyright: ignore[reportPrivateUsage]

    def sync(descriptor: int) -> None:
        if "/s3/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(file_ops, "_sync", sync)
        calls = [store.append(name, entries(2, 2)) for name in names]
        came = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in came] == [StoreError if name == "s3" else type(None) for name in names]
    await store.close()
    store = JsonlStore(root)
    assert [(await store.extent(name)).length for name in names] == [1 if name == "s3" else 2 for name in names]
    await store.close()


async def test_of_appends_that_share_a_write_one_that_cannot_be_written_stops_no_other(root: Path) -> None:
    store = JsonlStore(root)
    await store.append("s", entries(1, 1))
    bad = entry(3)._replace(message={"role": "user", "content": {1, 2}})
    calls = [store.append("s", [one]) for one in (*entries(2, 2), bad, *entries(4, 5))]
    came = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in came] == [type(None), StoreError, type(None), type(None)]
    assert "m3" in str(came[1])
    assert [one.seq for one in await store.read("s")] == [1, 2, 4, 5]
    await store.close()


@pytest.mark.parametrize("durability", ["flush", "none"])
async def test_without_durability_nothing_waits_for_the_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    counted = Counted(monkeypatch)
    store = JsonlStore(root, durability=durability)
    await store.append("s", entries(1, 9))
    await store.replace("s", 4, entries(10, 12))
    await store.save_checkpoint("s", 3, b"three")
    await store.fork("s", "child")
    await store.rewrite("s", [entry(1, "rewritten")])
    await store.close()
    assert counted.syncs == 0
    assert (await reopen(root)).seqs == [1, 2, 3, 4, 10, 11, 12]


async def test_without_durability_small_appends_are_buffered(root: Path) -> None:
    store = JsonlStore(root, durability="none")
    await store.append("s", [entry(1)])
    assert not Files(root).main.exists()
    assert await store.extent("s") == Extent(1, 1)
    await store.append("s", [entry(2, "x" * 80_000)])
    assert len(Files(root).messages) == 2
    await store.append("s", [entry(3)])
    assert len(Files(root).messages) == 2
    assert_same(await store.read("s", -1), [entry(3)])
    assert len(Files(root).messages) == 3
    for seq, other in enumerate((store.save_checkpoint("s", 1, b""), store.release("s")), 4):
        await store.append("s", [entry(seq)])
        await other
        assert len(Files(root).messages) == seq
    await store.close()
