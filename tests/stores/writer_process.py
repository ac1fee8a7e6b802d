"""A writer in a process of its own, to be killed and stopped: run as ``python writer_process.py URL``.

It prints ``ready``, then runs commands from its standard input: ``append SESSION SEQ`` and ``close``. It prints
``done`` or the name of the error.
"""

from __future__ import annotations

import asyncio
import os
import sys

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import open_store
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.contract.samples import entry


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


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
        print_line(asyncio.run(run_command(store, command, *arguments)))


if __name__ == "__main__":
    main()
