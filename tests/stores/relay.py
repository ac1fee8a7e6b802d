"""A relay for the protocol of Redis that answers chosen commands itself, as another version of the server would."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator

Reply = Callable[[list[bytes]], bytes | None]  # the reply to a command, or None: ask the real server


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readline())[1:])
    parts: list[bytes] = []
    for _ in range(count):
        size = int((await reader.readline())[1:])
        parts.append((await reader.readexactly(size + 2))[:-2])
    return parts


async def _reply(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if line[:1] == b"$" and int(line[1:]) >= 0:
        return line + await reader.readexactly(int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join([await _reply(reader) for _ in range(int(line[1:]))])
    return line


@contextlib.contextmanager
def relayed(port: int, answer: Reply) -> Generator[int]:
    """Run a relay in front of a Redis server, and yield its port."""
    loop: asyncio.AbstractEventLoop
    ending: asyncio.Event
    ready = threading.Event()
    ports: list[int] = []

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.closing(back), contextlib.suppress(OSError, ValueError, EOFError, asyncio.CancelledError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                while True:
                    command = await _command(client)
                    reply = answer(command)
                    if reply is None:
                        writer.write(b"*%d\r\n" % len(command))
                        for part in command:
                            writer.write(b"$%d\r\n%b\r\n" % (len(part), part))
                        reply = await _reply(reader)
                    back.write(reply)

    async def begin() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        async with server:
            await ending.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)

    async def run() -> None:
        nonlocal ending, loop
        ending, loop = asyncio.Event(), asyncio.get_running_loop()
        await begin()

    thread.start()
    ready.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
