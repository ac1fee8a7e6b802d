"""Writers killed at random moments: nothing acknowledged is lost, every session opens, the next append is clean."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from amplifier_context_core.stores.jsonl import appender
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.samples import entry
from tests.stores.jsonl.files import NAME
from tests.stores.kills import Struck, Tamper, message_of, survive


def tearing(root: Path) -> Tamper:
    """Damage what was not acknowledged, like a file system that crashed with the process."""

    def tear(session_id: str, struck: Struck, chance: random.Random) -> None:
        main = root / session_id / NAME
        if struck.in_flight not in ("", "append", "burst", "many") or not main.exists():
            return  # the journal holds the complete edit, whatever the other files look like; nothing is unacknowledged
        data = main.read_bytes()
        end = _acknowledged(data, struck)
        if chance.random() < 0.6 and end < len(data):
            os.truncate(main, chance.randrange(end, len(data)))
        else:
            garbage = (b"\0" * 4096, chance.randbytes(50), b'{"role": "user", "content": "\xe8', b"\0\n\0\n{}\n[]")
            with main.open("ab") as file:
                file.write(chance.choice(garbage))

    return tear


def _acknowledged(data: bytes, struck: Struck) -> int:
    """Return the offset after the acknowledged bytes of the main file."""
    history = struck.states[0].history
    if not history:
        return 0
    mark = str(message_of(*history[-1]).message["metadata"]["timestamp"]).encode()
    place = data.rfind(b'"' + mark + b'"')
    return data.index(b"\n", place) + 1


async def test_killed_writers_lose_nothing(root: Path) -> None:
    assert await survive(f"jsonl:{root}", 50, seed=1) > 50


async def test_killed_writers_lose_nothing_when_their_last_bytes_are_torn(root: Path) -> None:
    assert await survive(f"jsonl:{root}", 30, seed=2, tamper=tearing(root)) > 30


async def test_killed_writers_lose_nothing_on_a_real_disk(disk: Path) -> None:
    """There the kill meets most of them during an fsync."""
    await survive(f"jsonl:{disk}", 20, seed=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
async def test_four_hundred_killed_writers_lose_nothing(root: Path, disk: Path, seed: int) -> None:
    await survive(f"jsonl:{root}", 150, seed=100 + seed)
    await survive(f"jsonl:{root}", 150, seed=200 + seed, tamper=tearing(root))
    await survive(f"jsonl:{disk}", 50, seed=300 + seed, tamper=tearing(disk), longest=0.1)
    await survive(f"jsonl:{root}/flushed", 50, seed=400 + seed, durability="flush")


@pytest.mark.parametrize("batch", [["p", "q", "r"], ["x", "y", "z"], ["x", "x", "z"], ["b", "x", "z"], ["p", "p", "q"]])
async def test_a_writer_killed_before_the_index_is_written_leaves_the_beginning_of_its_batch(
    root: Path, monkeypatch: pytest.MonkeyPatch, batch: list[str]
) -> None:
    """Including a repetition of the last message, which looks like a tail that was written twice."""
    store = JsonlStore(root / "now")
    for seq, text in enumerate("abx", 1):
        await store.append("s", [entry(seq, text)])
    write, written = appender.write_all, 0

    def killed(descriptor: int, data: bytes) -> None:
        nonlocal written
        written += 1
        if written == 2:
            shutil.copytree(root / "now", root / "then")
        write(descriptor, data)

    monkeypatch.setattr(appender, "write_all", killed)
    await store.append("s", [entry(seq, text) for seq, text in enumerate(batch, 4)], atomic=False)
    await store.close()
    then = JsonlStore(root / "then")
    await then.open("s")
    held = [found.message["content"] for found in await then.read("s")]
    assert held[:3] == ["a", "b", "x"]
    assert held[3:] == batch[: len(held) - 3]
    assert await then.verify("s") == []
    await then.close()
