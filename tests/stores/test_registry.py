"""How a store is opened by its URL, and the errors if it cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ConfigError, ContextError, PluginError, Plugins, StoreError, hookimpl
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_servers.postgres_server.url import parse_store_url as parse_postgres_url
from amplifier_context_servers.redis_server.url import parse_store_url as parse_redis_url
from amplifier_context_testing.contract.samples import entries

BUILT_IN = ("jsonl", "sqlite")
SERVERS = ("postgresql", "postgres", "redis", "rediss")  # offered by the plug-in amplifier-context-servers
PASSWORD = "hunter2"


class Made(MemoryStore):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.given: tuple[object, ...] = (url,)


class Taking(Made):
    def __init__(self, url: str, durability: str, archive: bool) -> None:
        super().__init__(url)
        self.given = (url, durability, archive)


def plugins(offers: dict[str, Any]) -> Plugins:
    class Plugin:
        @hookimpl
        def amplifier_context_stores(self) -> dict[str, Any]:
            return offers

    made = Plugins()
    made.register(Plugin(), "my-stores")
    return made


@pytest.mark.parametrize("scheme", [*BUILT_IN, *SERVERS])
async def test_a_store_is_made_without_opening_anything(scheme: str, tmp_path: Path) -> None:
    """Nothing listens on port 1, and the folder is not made. A plug-in cannot take a built-in scheme."""
    at = f"{scheme}:{tmp_path}/new/x" if scheme in BUILT_IN else f"{scheme}://me:{PASSWORD}@127.0.0.1:1/0"
    made = open_store(at, plugins({scheme: Made}) if scheme in BUILT_IN else None)
    assert isinstance(made, Store)
    assert not isinstance(made, Made)
    assert PASSWORD not in repr(made)
    await made.close()
    assert list(tmp_path.iterdir()) == []
    assert open_store("memory:") is not open_store("memory:")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, []),
        ({"durability": "fsync", "archive": True}, []),
        ({"archive": False}, ["archive is ignored"]),
        ({"durability": "none", "archive": False}, ["durability and archive are ignored"]),
    ],
    ids=str,
)
def test_a_plug_ins_store_is_made_with_the_whole_url_and_settings_that_it_does_not_get_are_named(
    asked: dict[str, Any], named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    url = f"fancy://me:{PASSWORD}@host/path?x=1"
    made = open_store(url, plugins({"fancy": Made}), **asked)
    assert isinstance(made, Made)
    assert made.given == (url,)
    because = "the plug-in of fancy: has no such parameter"
    assert caplog.messages == [f"store: {text}: {because}" for text in named]
    taking = open_store(url, plugins({"fancy": Taking}), durability="none", archive=False)
    assert isinstance(taking, Taking)
    assert taking.given == (url, "none", False), "what it takes it gets"
    assert len(caplog.messages) == len(named)


NO_URL = "is not a URL; a store's URL begins with a scheme"


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        *((url, f"store: {NO_URL}, like 'jsonl:FOLDER'") for url in ("", "memory", "me@host/x", "./me@host")),
        *((path, f"store: {path!r} {NO_URL}: jsonl:{path}") for path in ("~/sessions", "C:\\sessions", "there")),
        *((path, f"store: {path!r} {NO_URL}: sqlite:{path}") for path in ("agents.db", "/var/lib/agents.sqlite")),
    ],
)
def test_what_has_no_scheme_is_refused_and_a_path_answered_with_the_url_it_may_mean(
    given: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError) as caught:
        open_store(given, Plugins())
    assert str(caught.value).startswith(answer)


@pytest.mark.parametrize("scheme", ["postgresql", "rediss"])
def test_a_store_whose_package_is_not_installed_is_an_error_that_names_it(scheme: str) -> None:
    extra = "redis" if scheme.startswith("redis") else "postgresql"
    with pytest.raises(ConfigError) as caught:
        open_store(f"{scheme}://me:{PASSWORD}@127.0.0.1:1/0", Plugins())
    assert f"pip install 'amplifier-context-servers[{extra}]'" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def raises(problem: Exception) -> Callable[[str], Any]:
    def make(url: str) -> Any:
        raise problem

    return make


@pytest.mark.parametrize(
    ("maker", "error", "says"),
    [
        (raises(ConfigError("store", "names no server")), ConfigError, r"^store: names no server$"),
        (raises(RuntimeError("disk on fire")), PluginError, r"my-stores.*RuntimeError"),
        (lambda url: object(), ConfigError, "no store"),
    ],
)
def test_a_plug_in_that_makes_no_store_is_an_error(
    maker: Callable[[str], Any], error: type[ContextError], says: str
) -> None:
    with pytest.raises(error, match=says):
        open_store("fancy://x", plugins({"fancy": maker}))


def test_an_unknown_scheme_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match="'nosuch' is not known") as caught:
        open_store("nosuch://x", plugins({"fancy": Made}))
    for scheme in ("memory", "fancy", *BUILT_IN, *SERVERS):
        assert scheme in str(caught.value)


@pytest.mark.parametrize("url", [f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", f"redis://me:{PASSWORD}@127.0.0.1:1/3"])
async def test_a_server_that_is_not_there_is_named_at_once_without_the_password(url: str) -> None:
    store = open_store(url)
    for call in (store.append("s", entries(1, 1)), store.sessions(), store.open("s")):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1, database .* cannot be reached.*again") as caught:
            await call
        assert PASSWORD not in str(caught.value) + str(caught.value.__cause__)
    await store.release("s")
    await store.close()


DRIVERLESS = """
import sys
from amplifier_context_core import ConfigError
from amplifier_context_core.stores import open_store
for other in ("memory:", "jsonl:/nowhere/x", "sqlite:/nowhere/x"):
    open_store(other)
for driver in ("psycopg", "psycopg_pool", "redis"):
    assert driver not in sys.modules
for driver, scheme in (("psycopg", "postgresql"), ("psycopg_pool", "postgresql"), ("redis", "redis")):
    sys.modules[driver] = None
    try:
        open_store(f"{scheme}://127.0.0.1:1/0")
    except ConfigError as problem:
        assert f"pip install 'amplifier-context-servers[{scheme}]'" in str(problem), problem
    else:
        raise AssertionError(driver)
    del sys.modules[driver]
"""


def test_a_missing_driver_is_an_error_that_names_what_to_install_and_other_stores_import_none() -> None:
    """In a process of its own, which has not imported a driver yet."""
    done = subprocess.run([sys.executable, "-c", DRIVERLESS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_is_missing_inside_a_store_is_not_mistaken_for_its_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "amplifier_context_servers.redis_server.store", None)
    with pytest.raises(PluginError, match="ModuleNotFoundError"):
        open_store("redis://127.0.0.1:1/0")


# -- URLs that cannot be used -----------------------------------------------------------------------------------------

POSTGRES = f"postgresql://me:{PASSWORD}@"
REDIS = f"redis://me:{PASSWORD}@"
UNUSABLE = {
    "": [
        *("jsonl:", "sqlite:", "sqlite:a\0b", "sqlite:x\n", "jsonl:a\x1b[2J", "jsonl:~no-user-of-this-name/x"),
        *(PASSWORD, f"//me-{PASSWORD}@host", f"mysql://me:{PASSWORD}@host/x"),
        *("sqlite:///tmp/x", "sqlite::memory:", "sqlite:file:x?mode=ro", "sqlite: x", "memory:x"),
        *(f"sqlite://me:{PASSWORD}@/x", f"jsonl://me:{PASSWORD}@host/x"),
        *("postgresql://", f"postgresql://me:12#{PASSWORD}@host/x", f"postgresql://me:%zz{PASSWORD}@host/x"),
        f"postgresql://me@host/x?password={PASSWORD}&password=y",
        *("redis://", "redis:///0", f"redis:{PASSWORD}@host/0", f"redis://:12#{PASSWORD}@host/0"),
        *(f"{scheme}://me:pass@{PASSWORD}@host/0" for scheme in ("postgresql", "redis")),
    ],
    POSTGRES: [
        *("host:port/x", "[::1/x", "host/x?dbname=y", "host/x?password=y", "host/x?pool_size=2.7"),
        *("host/x?schema=", f"host/x?schema={'x' * 64}", "host/x?schema=pg_mine", "host/x?schema=per%25cent"),
        *("host/x?schema=a%00b", "host/x?schema=a&schema=b", "host/x?lease_ttl=soon", "host/x?lease_ttl=nan"),
        *("host/x?statement_timeout=-1", "host/x?connect_timeout=never", "host/x?no_such_parameter=1"),
    ],
    REDIS: [
        *("/0", "host:port/0", "[::1/0", "host:99999999/0", "host/abc", "host/-1", "host/1_0", "host/\u0663"),
        *("host/%31", "host/2147483648", "host/1/2", "host?db=", "host/3?db=4", "host?db=3&db=4"),
        *("host?db=3&cluster=true", "host?prefix=", f"host?prefix={'x' * 101}", "host?lease_ttl=0", "host?pool_size=0"),
        "host?no_such_parameter=1",
    ],
    "postgresql://some_user:": [  # pieces of a password are not taken for parameters
        *(f"{written}@127.0.0.1/test" for written in (f"@?{PASSWORD}", f"o@p?user=a&{PASSWORD}=1&x")),
    ],
}


@pytest.mark.parametrize("url", [f"{begin}{end}" for begin, ends in UNUSABLE.items() for end in ends])
def test_a_url_that_cannot_be_used_is_refused_without_quoting_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^store: ") as caught:
        open_store(url)
    assert PASSWORD not in traceback_text(caught.value)
    assert caught.value.key == "store"


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("schmea=mine", "'schmea'; did you mean 'schema'?"),
        ("bogus=1", "'bogus'; known are schema, lease_ttl, statement_timeout, pool_size and the parameters of libpq"),
    ],
)
def test_an_unknown_parameter_is_named_with_the_nearest_known_and_what_libpq_knows_is_left_to_it(
    more: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(f"{POSTGRES}127.0.0.1/test?{more}")
    assert hint in str(caught.value)
    for known in ("ssl=true", "%75ser=me", "sslmode=disable&application_name=x"):
        assert isinstance(open_store(f"postgresql://127.0.0.1/test?{known}"), Store)


@pytest.mark.parametrize("wrong", ["soon", "inf", "nan", "0", ""])
def test_a_parameter_with_an_impossible_value_is_named(wrong: str) -> None:
    for url, names in (
        (POSTGRES, ("statement_timeout", "connect_timeout", "lease_ttl", "pool_size")),
        (REDIS, ("socket_timeout", "socket_connect_timeout", "lease_ttl", "pool_size")),
    ):
        for name in names:
            with pytest.raises(ConfigError, match=f"^store: {name}: "):
                open_store(f"{url}127.0.0.1/1?{name}={wrong}")


def test_a_url_names_one_database_and_one_of_postgresql_may_leave_out_the_server() -> None:
    """libpq then goes to the socket of this machine."""
    for end, database in {"": 0, "/": 0, "/15": 15, "?db=7": 7}.items():
        read = parse_redis_url(f"redis://host{end}", "fsync")
        assert read.display_name == f"Redis at host:6379, database {database}"
    local = parse_postgres_url("postgresql:///things?schema=mine", "fsync")
    assert (local.display_name, local.schema) == ("PostgreSQL at the local server:5432, database 'things'", "mine")


def traceback_text(problem: BaseException) -> str:
    """Return the text of a traceback of an error, its causes included."""
    texts = [repr(problem), str(problem)]
    shown = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    return "\n".join([*texts, traceback_text(shown)] if shown else texts)
