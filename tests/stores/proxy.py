"""A TCP proxy that cuts connections at chosen moments.

It recognises the request to be cut by a mark: bytes in a message. The moments are:

- ``before``: the request never reaches the server.
- ``after``: the server has answered, so it has committed; the answer never reaches the client.
- ``middle``: the server gets the first half of what came with the mark, and no more.
- ``late``: the client is cut off at once; the server gets the request a moment later and carries it out.
- ``silence``: no data passes any more, in either direction.
"""

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple

Moment = Literal["before", "after", "middle", "late", "silence"]
LATE = 0.25  # seconds
_SIZE = 1 << 16  # bytes that are read at once


class PlannedCut(NamedTuple):
    """A cut that waits for its request."""

    mark: bytes  # in the request
    moment: Moment
    then_refuse: bool  # connections from then on, until `Proxy.accept`


class Proxy:
    """Forwards everything to another port, on the event loop of the test."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._cuts: list[PlannedCut] = []
        self._refusing = False
        self.port = 0
        self.made = 0  # cuts so far

    def cut(self, mark: bytes, moment: Moment, *, then_refuse: bool = False) -> None:
        """Cut the connection of the next request that holds these bytes."""
        self._cuts.append(PlannedCut(mark, moment, then_refuse))

    def accept(self) -> None:
        self._refusing = False

    async def forward(self, client: StreamReader, to_client: StreamWriter) -> None:
        """Forward a connection until it ends or is cut."""
        with contextlib.closing(to_client), contextlib.suppress(OSError):
            if self._refusing:
                return
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            answers = asyncio.create_task(_copy(server, to_client))
            with contextlib.closing(to_server):
                while data := await client.read(_SIZE):
                    if cut := next((one for one in self._cuts if one.mark in data), None):
                        break
                    to_server.write(data)
                else:
                    return
                self._cuts.remove(cut)
                self.made += 1
                answers.cancel()
                await asyncio.wait((answers,))
                if cut.moment == "silence":
                    await client.read()
                elif cut.moment == "middle":
                    to_server.write(data[: max(1, len(data) // 2)])
                elif cut.moment == "after":
                    to_server.write(data)
                    rest = asyncio.create_task(_copy(client, to_server))
                    await server.read(_SIZE)
                    rest.cancel()
                self._refusing |= cut.then_refuse
                if cut.moment == "late":
                    with contextlib.suppress(TimeoutError):
                        while more := await asyncio.wait_for(client.read(_SIZE), 0.1):
                            data += more  # a long request comes in pieces
                    to_client.close()
                    await asyncio.sleep(LATE)
                    to_server.write(data)
                    await server.read(_SIZE)


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_SIZE):
            writer.write(data)
    writer.close()


@contextlib.asynccontextmanager
async def proxied(port: int) -> AsyncGenerator[Proxy]:
    proxy = Proxy(port)
    async with await asyncio.start_server(proxy.forward, "127.0.0.1", 0) as server:
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy
