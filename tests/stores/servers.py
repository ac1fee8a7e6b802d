"""The servers that tests share, and private ones that a test may stop, freeze and start again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from amplifier_context_core.stores import open_store
from amplifier_context_servers.leased.store import LeasedStore
from tests import places

POSTGRES, REDIS = (os.environ.get(variable) or default for variable, default in places.SERVERS.values())


def with_parameters(url: str, **parameters: object) -> str:
    """Return a URL with more parameters."""
    more = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"{url}{'&' if '?' in url else '?'}{more}"


def store_of(url: str) -> LeasedStore:
    store = open_store(url)
    assert isinstance(store, LeasedStore)
    return store


def own_name() -> str:
    """Return a name for a schema or a key prefix that no other test run uses."""
    return f"test_{os.getpid()}_{uuid.uuid4().hex[:8]}"


SECOND = 10_000  # a node of a Redis cluster listens on a second port, this far above its own


def free_port() -> int:
    """Return a port that is free, together with its second port. Both are below the ports that the system gives to
    clients (from 32,768 on Linux): there, any connection of the last minute may keep a server from its port.
    """
    for port in random.sample(range(10_000, 20_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe, socket.socket() as second:
            probe.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + SECOND))
            return port
    pytest.fail("no port is free")


class PrivateServer(Protocol):
    """A server of the test's own."""

    port: int
    folder: Path

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        """Stop at once, as if the machine had lost power: no client gets a message."""
        ...

    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def remove(self) -> None: ...


class PrivatePostgres:
    """A PostgreSQL server with its data in a folder of its own."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        initdb = found[-1] if found else Path(shutil.which("initdb") or "")
        if not initdb.is_file():
            pytest.skip("no initdb: PostgreSQL's server programs are not installed here")
        self._bin = initdb.parent
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="amplifier-pg-"))
        self._as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            runuser = shutil.which("runuser")
            try:
                shutil.chown(self.folder, "postgres")
            except LookupError:
                runuser = None
            if runuser is None:
                self.remove()
                pytest.skip("running as root, and there is no user postgres to run a server as")
            self._as = [runuser, "-u", "postgres", "--"]
        self._run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C", "-D", self._data)
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._bin / program), *arguments]
        subprocess.run(command, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=60"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def _signal(self, number: signal.Signals) -> None:
        first = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(first, number)  # before its children: then there will be no more of them
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False)
        for pid in map(int, found.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            with contextlib.suppress(subprocess.SubprocessError):
                self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class PrivateRedis:
    """A Redis server with its data in a folder of its own; it syncs every change before it acknowledges it."""

    def __init__(self, *options: str) -> None:
        self._program = shutil.which("redis-server") or ""
        if not self._program:
            pytest.skip("no redis-server is installed here")
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="amplifier-redis-"))
        self._options = options or ("--appendonly", "yes", "--appendfsync", "always")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `remove`; not in the folder, which tests search
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options]
        self._process = subprocess.Popen(command, cwd=self.folder, stdout=self._log)
        # The client's own retries would take seconds for each look, and never see that the server has ended.
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=5) as client:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and self._process.poll() is None:
                with contextlib.suppress(redis.RedisError):
                    client.ping()
                    return
                time.sleep(0.02)
        self._log.seek(0)
        pytest.fail(f"the private Redis did not start:\n{self._log.read().decode()[-2_000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def await_cluster(self) -> None:
        """Wait until this node reports that its cluster is complete."""
        with redis.Redis(port=self.port) as client:
            deadline = time.monotonic() + 60
            while b"cluster_state:ok" not in (info := client.execute_command("CLUSTER", "INFO")):
                if time.monotonic() > deadline:
                    pytest.fail(f"the cluster did not become complete:\n{info.decode()}")
                time.sleep(0.02)

    def remove(self) -> None:
        self.stop()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def postgres_is_there() -> None:
    """Skip unless the shared PostgreSQL is there."""
    places.server("postgresql")


def redis_is_there() -> None:
    """Skip unless the shared Redis is there."""
    places.server("redis")


def drop_prefix(prefix: str, url: str = REDIS) -> None:
    """Delete all keys of a prefix."""
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter(f"*{prefix}*", count=5_000))
        for first in range(0, len(keys), 1_000):
            client.delete(*keys[first : first + 1_000])


def drop_schema(schema: str, url: str = POSTGRES) -> None:
    """Drop a schema with all its tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(psycopg.sql.Identifier(schema)))


def ask(query: str, schema: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement about the tables of a schema."""
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("SET search_path TO {}").format(psycopg.sql.Identifier(schema)))
        found = connection.execute(query.encode(), values)
        return found.fetchall() if found.description else []


def empty_schema(schema: str, url: str = POSTGRES) -> None:
    """Delete all rows of a schema, if it exists."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s", [schema]).fetchone():
            for name in ("sessions", "entries", "archive", "vectors"):
                table = psycopg.sql.Identifier(schema, name)
                connection.execute(psycopg.sql.SQL("DELETE FROM {}").format(table))


PRIVATE: dict[str, type[PrivatePostgres | PrivateRedis]] = {"postgresql": PrivatePostgres, "redis": PrivateRedis}


@contextlib.contextmanager
def private(kind: type[PrivatePostgres | PrivateRedis]) -> Generator[PrivateServer]:
    """Start a server of the test's own; remove it afterwards."""
    server = kind()
    try:
        yield server
    finally:
        server.remove()
