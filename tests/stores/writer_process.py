"""A writer in a process of its own, to be killed and stopped: run as ``python writer_process.py URL``.

It prints ``ready``, then runs commands from its standard input. ``fork SESSION`` forks a child and prints ``child
PID``. The child appends messages to that session until it is killed, and prints ``ack SEQ`` after each append that was
acknowledged. The process itself runs ``append SESSION SEQ`` and ``close``, and prints ``done`` or the name of the
error. To fork costs a fraction of starting Python, so that a test can kill many writers.
"""

from __future__ import annotations

import asyncio
import os
import sys

from amplifier_context_core.errors import SessionInUse, StoreError
from amplifier_context_core.stores import open_store
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.contract.samples import entry


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_until_killed(store: LeasedStore, session_id: str) -> None:
    """Append until the process is killed: single messages and small batches in turn."""
    while True:
        try:
            seq = (await store.open(session_id)).last_seq
            break
        except SessionInUse:  # locked by a killed writer until its lease expires
            await asyncio.sleep(0.02)
    while True:
        batch = [entry(seq + number, f"message {seq + number} " + "x" * 400) for number in range(1, 2 + seq % 3)]
        await store.append(session_id, batch)
        seq += len(batch)
        print_line(f"ack {seq}")


async def run_command(store: LeasedStore, command: str, *arguments: str) -> str:
    try:
        if command == "append":
            await store.append(arguments[0], [entry(int(arguments[1]))])
        elif command == "close":
            await store.close()
    except StoreError as problem:
        return type(problem).__name__
    return "done"


def main() -> None:
    url = sys.argv[1]
    store = open_store(url)
    assert isinstance(store, LeasedStore)
    asyncio.run(store.sessions())  # imports everything, and creates the schema
    asyncio.run(store.close())
    print_line("ready")
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "fork":
            pid = os.fork()
            if pid == 0:
                asyncio.run(write_until_killed(store, arguments[0]))
            print_line(f"child {pid}")
            os.waitpid(pid, 0)
            print_line("gone")
        else:
            print_line(asyncio.run(run_command(store, command, *arguments)))


if __name__ == "__main__":
    main()
