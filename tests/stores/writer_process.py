"""A writer in a process of its own, to be killed and stopped: run as ``python writer_process.py ADDRESS``.

It says ``ready``, then obeys lines on its standard input. ``fork SESSION`` forks a child, says ``child PID``, and the
child appends to that session message after message until it is killed, saying ``ack SEQ`` for each that was
acknowledged. ``append SESSION SEQ`` and ``close`` are done by the process itself, and answered with ``done`` or the
error's name. To fork costs a fraction of what it costs to start Python, so that there can be many kills.
"""

from __future__ import annotations

import asyncio
import os
import sys

from amplifier_context_core.errors import SessionInUse, StoreError
from amplifier_context_core.stores import open_store
from amplifier_context_core.stores.leased.store import LeasedStore
from amplifier_context_testing.contract.samples import entry


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_for_ever(store: LeasedStore, session_id: str) -> None:
    """Append until the end comes from outside: single messages and small batches in turn."""
    while True:
        try:
            seq = (await store.open(session_id)).last_seq
            break
        except SessionInUse:  # by one that was killed: until its claim expires
            await asyncio.sleep(0.02)
    while True:
        batch = [entry(seq + number, f"message {seq + number} " + "x" * 400) for number in range(1, 2 + seq % 3)]
        await store.append(session_id, batch)
        seq += len(batch)
        say(f"ack {seq}")


async def obey(store: LeasedStore, command: str, *arguments: str) -> str:
    try:
        if command == "append":
            await store.append(arguments[0], [entry(int(arguments[1]))])
        elif command == "close":
            await store.close()
    except StoreError as problem:
        return type(problem).__name__
    return "done"


def main() -> None:
    address = sys.argv[1]
    store = open_store(address)
    assert isinstance(store, LeasedStore)
    asyncio.run(store.sessions())  # all is imported, the schema made
    asyncio.run(store.close())
    say("ready")
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "fork":
            pid = os.fork()
            if pid == 0:
                asyncio.run(write_for_ever(store, arguments[0]))
            say(f"child {pid}")
            os.waitpid(pid, 0)
            say("gone")
        else:
            say(asyncio.run(obey(store, command, *arguments)))


if __name__ == "__main__":
    main()
