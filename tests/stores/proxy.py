"""A TCP proxy that cuts connections at chosen moments.

It recognises the request to be cut by a mark: bytes in a message. The moments are:

- ``before``: the request never reaches the server.
- ``after``: the server has answered, so it has committed; the answer never reaches the client.
- ``middle``: the server gets the first half of what came with the mark, and no more.
- ``late``: the client is cut off at once; the server gets the request a moment later and carries it out.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Generator
from typing import Literal, NamedTuple

Moment = Literal["before", "after", "middle", "late"]
LATE = 0.25  # seconds


class PlannedCut(NamedTuple):
    """A cut that waits for its request."""

    mark: bytes  # in the request
    moment: Moment
    then_refuse: bool  # connections from then on, until `Proxy.accept`


class Proxy:
    """Listens on a port of its own, and forwards everything to another."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._cuts: list[PlannedCut] = []
        self._refusing = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.made = 0  # cuts so far
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self, mark: bytes, moment: Moment, *, then_refuse: bool = False) -> None:
        """Cut the connection of the next request that holds these bytes."""
        with self._lock:
            self._cuts.append(PlannedCut(mark, moment, then_refuse))

    def refuse(self) -> None:
        """Cut all connections, and refuse new ones."""
        with self._lock:
            self._refusing = True
            for one in self._open:
                _close(one)
            self._open.clear()

    def accept(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._refusing = False

    def close(self) -> None:
        """Close the proxy and all its connections."""
        _close(self._listener)
        self.refuse()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            made = [client]
            with contextlib.suppress(OSError):
                if not self._refusing:
                    made.append(socket.create_connection(("127.0.0.1", self._target)))
            with self._lock:
                if len(made) == 2 and not self._refusing:  # `refuse` may have been called meanwhile
                    self._open.update(made)
                    threading.Thread(target=self._forward, args=made, daemon=True).start()
                    continue
            for one in made:
                _close(one)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                readable, _, _ = select.select([client, server], [], [])
                if client in readable:
                    data = client.recv(1 << 16)
                    if not data:
                        break
                    found = self._found(data)
                    if found is not None:
                        self._cut_now(found, data, client, server)
                        break
                    server.sendall(data)
                if server in readable:
                    data = server.recv(1 << 16)
                    if not data:
                        break
                    client.sendall(data)
        for one in (client, server):
            _close(one)
            with self._lock:
                self._open.discard(one)

    def _found(self, data: bytes) -> PlannedCut | None:
        with self._lock:
            for cut in self._cuts:
                if cut.mark in data:
                    self._cuts.remove(cut)
                    self.made += 1
                    return cut
        return None

    def _cut_now(self, cut: PlannedCut, data: bytes, client: socket.socket, server: socket.socket) -> None:
        if cut.moment == "after":
            server.sendall(data)
            self._await_answer(client, server)
        elif cut.moment == "middle":
            server.sendall(data[: max(1, len(data) // 2)])
        if cut.then_refuse:
            with self._lock:
                self._refusing = True
        if cut.moment == "late":
            while select.select([client], [], [], 0.1)[0] and (more := client.recv(1 << 16)):
                data += more  # a long request comes in pieces
            _close(client)
            time.sleep(LATE)
            server.sendall(data)
            self._await_answer(None, server)

    def _await_answer(self, client: socket.socket | None, server: socket.socket) -> None:
        """Wait until the server has answered the request; more of the request may still arrive."""
        while True:
            watched = [server] if client is None else [client, server]
            readable, _, _ = select.select(watched, [], [], 10)
            if not readable:
                return
            if server in readable:
                server.recv(1 << 16)
                return
            if client is not None:
                data = client.recv(1 << 16)
                server.sendall(data)
                client = client if data else None  # it sends no more


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def proxied(port: int) -> Generator[Proxy]:
    """Run a proxy in front of a port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
