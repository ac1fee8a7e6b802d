"""A relay for the protocol of Redis that answers chosen commands itself, as another version of the server would."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Generator
from io import BufferedIOBase

Reply = Callable[[list[bytes]], bytes | None]  # the reply to a command, or None: ask the real server


def _exactly(source: BufferedIOBase, size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _command(source: BufferedIOBase) -> list[bytes]:
    count = int(source.readline()[1:])
    parts: list[bytes] = []
    for _ in range(count):
        size = int(source.readline()[1:])
        parts.append(_exactly(source, size + 2)[:-2])
    return parts


def _reply(source: BufferedIOBase) -> bytes:
    line = source.readline()
    if line[:1] == b"$" and int(line[1:]) >= 0:
        return line + _exactly(source, int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join([_reply(source) for _ in range(int(line[1:]))])
    return line


class _Server(socketserver.ThreadingTCPServer):
    """Keeps its connections, so that they can be ended: its threads wait for them."""

    def __init__(self, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address


@contextlib.contextmanager
def relayed(port: int, answer: Reply) -> Generator[int]:
    """Run a relay in front of a Redis server, and yield its port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with (
                contextlib.suppress(OSError, ValueError, EOFError),
                socket.create_connection(("127.0.0.1", port)) as server,
                server.makefile("rb") as replies,
            ):
                while True:
                    command = _command(self.rfile)
                    reply = answer(command)
                    if reply is None:
                        server.sendall(b"*%d\r\n" % len(command))
                        server.sendall(b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in command))
                        reply = _reply(replies)
                    self.wfile.write(reply)

    with _Server(Handler) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield relay.server_address[1]
        finally:
            relay.shutdown()
            thread.join()
            for connection in relay.connections:
                with contextlib.suppress(OSError):  # it was closed
                    connection.shutdown(socket.SHUT_RDWR)
