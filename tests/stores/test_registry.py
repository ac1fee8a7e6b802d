"""How a store is opened by its URL, and the errors if it cannot be."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ConfigError, ContextError, PluginError, Plugins, StoreError, hookimpl
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_servers.redis_server.url import parse_store_url as parse_redis_url
from amplifier_context_testing.contract.samples import entries

BUILT_IN = ("jsonl", "sqlite")
SERVERS = ("postgresql", "postgres", "redis", "rediss")  # offered by the plug-in amplifier-context-servers
PASSWORD = "hunter2"


class Made(MemoryStore):
    def __init__(self, *given: object) -> None:
        super().__init__()
        self.given = given


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


def test_a_plug_ins_store_gets_the_whole_url_and_settings_that_it_does_not_take_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(url: str) -> Made:
        return Made(url)

    def taking(url: str, durability: str, archive: bool) -> Made:
        return Made(url, durability, archive)

    url = f"fancy://me:{PASSWORD}@host/path?x=1"
    asked: dict[str, Any] = {"durability": "none", "archive": False}
    for maker, options, given in (
        (make, {"durability": "fsync", "archive": True}, (url,)),
        (taking, asked, (url, "none", False)),
        (make, asked, (url,)),
    ):
        assert caplog.messages == []
        made = open_store(url, plugins({"fancy": maker}), **options)
        assert isinstance(made, Made)
        assert made.given == given
    ignored = "durability and archive are ignored: the plug-in of fancy: has no such parameter"
    assert caplog.messages == [f"store: {ignored}"]


def raises(problem: Exception) -> Callable[[str], Any]:
    def make(url: str) -> Any:
        raise problem

    return make


@pytest.mark.parametrize(
    ("scheme", "error", "says"),
    [
        ("refusing", ConfigError, r"^store: names no server$"),
        ("failing", PluginError, r"my-stores.*RuntimeError"),
        ("empty", ConfigError, "no store"),
        ("nosuch", ConfigError, "'nosuch' is not known.*empty.*jsonl.*memory.*postgresql"),
        ("redis", ConfigError, r"needs a package that is not installed.* 'amplifier-context-servers\[redis\]'"),
        ("~/sessions", ConfigError, "is not a URL.*jsonl:FOLDER"),
    ],
)
def test_a_plug_in_that_makes_no_store_and_an_unknown_scheme_are_errors(
    scheme: str, error: type[ContextError], says: str
) -> None:
    makers = {"refusing": raises(ConfigError("store", "names no server")), "failing": raises(RuntimeError("on fire"))}
    with pytest.raises(error, match=says):
        open_store(scheme if "URL" in says else f"{scheme}://x", plugins({**makers, "empty": lambda url: object()}))


@pytest.mark.parametrize("url", [f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", f"redis://me:{PASSWORD}@127.0.0.1:1/3"])
async def test_a_server_that_is_not_there_is_named_at_once_without_the_password(url: str) -> None:
    store = open_store(url)
    for call in (store.append("s", entries(1, 1)), store.sessions(), store.open("s")):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1, database .* cannot be reached.*again") as caught:
            await call
        assert PASSWORD not in str(caught.value) + str(caught.value.__cause__)
    await store.release("s")
    await store.close()


POSTGRES = f"postgresql://me:{PASSWORD}@"
REDIS = f"redis://me:{PASSWORD}@"
UNUSABLE = {
    "": [
        *("jsonl:", "sqlite:a\0b", "sqlite:x\n", "jsonl:a\x1b[2J", "jsonl:~no-user-of-this-name/x"),
        *(PASSWORD, f"//me-{PASSWORD}@host", f"mysql://me:{PASSWORD}@host/x"),
        *("sqlite:///tmp/x", "sqlite::memory:", "sqlite:file:x?mode=ro", "sqlite: x", "memory:x"),
        *(f"sqlite://me:{PASSWORD}@/x", f"jsonl://me:{PASSWORD}@host/x"),
        *("postgresql://", f"postgresql://me:12#{PASSWORD}@host/x", f"postgresql://me:%zz{PASSWORD}@host/x"),
        f"postgresql://some_user:@?{PASSWORD}@127.0.0.1/test",  # a piece of a password is not taken for a parameter
        *("redis:///0", f"redis:{PASSWORD}@host/0", f"redis://:12#{PASSWORD}@host/0"),
        *(f"{scheme}://me:pass@{PASSWORD}@host/0" for scheme in ("postgresql", "redis")),
    ],
    POSTGRES: [
        *("host:port/x", "host/x?schema=", f"host/x?schema={'x' * 64}"),
        *("host/x?schema=pg_mine", "host/x?schema=per%25cent", "host/x?schema=a%00b", "host/x?schema=a&schema=b"),
        *("host/x?schmea=mine", "host/x?statement_timeout=inf", "host/x?connect_timeout=soon", "host/x?pool_size=2.7"),
    ],
    REDIS: [
        *("host:99999999/0", "[::1/0", "host/abc", "host/-1", "host/1_0", "host/\u0663", "host/%31"),
        *("host/1/2", "host?db=", "host?db=3&cluster=true", "host?prefix="),
        *(f"host?prefix={'x' * 101}", "host?lease_ttl=0", "host?socket_timeout=nan", "host?no_such_parameter=1"),
    ],
}


@pytest.mark.parametrize("url", [f"{begin}{end}" for begin, ends in UNUSABLE.items() for end in ends])
def test_a_url_that_cannot_be_used_is_refused_without_quoting_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^store: ") as caught:
        open_store(url)
    assert PASSWORD not in repr(caught.value) + "".join(traceback.format_exception(caught.value))
    assert caught.value.key == "store"


def test_what_libpq_knows_is_left_to_it_and_a_redis_url_names_a_database_in_two_ways() -> None:
    assert isinstance(open_store("postgresql:///test?%75ser=me&sslmode=disable&application_name=x"), Store)
    for end, database in {"": 0, "/15": 15, "?db=7": 7}.items():
        assert f"database {database}" in parse_redis_url(f"redis://host{end}", "fsync").display_name
