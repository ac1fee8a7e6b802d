"""The servers that tests share, and private ones that a test may stop, freeze and start again."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class PrivateServer:
    """A server with its data in a folder of its own. `stop` is at once, as if the machine had lost power."""

    url: str
    start: Callable[[], None]
    stop: Callable[[], None]

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="amplifier-server-"))

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class PrivatePostgres(PrivateServer):
    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            pytest.skip("no initdb: PostgreSQL's server programs are not installed here")
        super().__init__()
        self._bin, self._as = found[-1].parent, list[str]()
        self._data = str(self.folder / "data")
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self.folder, "postgres")
            self._as = ["runuser", "-u", "postgres", "--"]
        self._run("initdb", "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C", "-D", self._data)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._bin / program), *arguments]
        subprocess.run(command, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=60"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")


class PrivateRedis(PrivateServer):
    """It syncs every change before it acknowledges it, without other options."""

    def __init__(self, *options: str) -> None:
        if not shutil.which("redis-server"):
            pytest.skip("no redis-server is installed here")
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options or ("--appendonly", "yes", "--appendfsync", "always")
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options]
        self._process = subprocess.Popen(command, cwd=self.folder)
        # The client's own retries would take seconds for each look.
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=5) as client:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and self._process.poll() is None:
                with contextlib.suppress(redis.RedisError):
                    client.ping()
                    return
                time.sleep(0.02)
        self.close()
        pytest.fail("the private Redis did not start")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def drop_prefix(prefix: str) -> None:
    with redis.Redis.from_url(REDIS) as client:
        for key in client.scan_iter(f"*{prefix}*", count=5_000):
            client.delete(key)


def ask(query: str, schema: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement about the tables of a schema."""
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("SET search_path TO {}").format(psycopg.sql.Identifier(schema)))
        found = connection.execute(query.encode(), values)
        return found.fetchall() if found.description else []


def drop_schema(schema: str) -> None:
    ask(psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(psycopg.sql.Identifier(schema)).as_string(), schema)


def empty_schema(schema: str) -> None:
    if ask("SELECT 1 FROM pg_tables WHERE schemaname = %s", schema, schema):
        for name in ("sessions", "entries", "archive", "vectors"):
            ask(f"DELETE FROM {name}", schema)


PRIVATE: dict[str, Callable[[], PrivateServer]] = {"postgresql": PrivatePostgres, "redis": PrivateRedis}
