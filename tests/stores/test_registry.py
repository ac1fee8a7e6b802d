"""How a store is opened by its URL, and the errors if it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_core import ConfigError, PluginError, Plugins, hookimpl
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_servers.postgres_server.url import parse_store_url as parse_postgres_url
from amplifier_context_servers.redis_server.url import parse_store_url as parse_redis_url

BUILT_IN = {
    "jsonl": ("jsonl.store", "JsonlStore"),
    "sqlite": ("sqlite.store", "SqliteStore"),
}
SERVERS = {  # offered by the plug-in amplifier-context-servers
    "postgresql": ("postgres_server.store", "PostgresStore"),
    "postgres": ("postgres_server.store", "PostgresStore"),
    "redis": ("redis_server.store", "RedisStore"),
    "rediss": ("redis_server.store", "RedisStore"),
}
PASSWORD = "hunter2"


class Made(MemoryStore):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


def plugins(offers: dict[str, Any]) -> Plugins:
    class Plugin:
        @hookimpl
        def amplifier_context_stores(self) -> dict[str, Any]:
            return offers

    made = Plugins()
    made.register(Plugin(), "my-stores")
    return made


def test_the_memory_store_answers_to_its_scheme_and_every_call_makes_another() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")


@pytest.mark.parametrize("scheme", [*BUILT_IN, *SERVERS])
def test_a_store_of_ours_is_made_of_the_whole_url_and_the_settings(
    scheme: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module, name = {**BUILT_IN, **SERVERS}[scheme]
    package = "amplifier_context_core.stores" if scheme in BUILT_IN else "amplifier_context_servers"
    asked: list[tuple[str, dict[str, Any]]] = []

    class FakeStore(MemoryStore):
        @classmethod
        def from_url(cls, url: str, **more: Any) -> FakeStore:
            asked.append((url, more))
            return cls()

    fake = ModuleType(module)
    setattr(fake, name, FakeStore)
    monkeypatch.setitem(sys.modules, f"{package}.{module}", fake)
    assert isinstance(open_store(f"{scheme}://host/path?x=1"), FakeStore)
    assert isinstance(open_store(f"{scheme}:~/path", durability="none", archive=False), FakeStore)
    assert asked == [
        (f"{scheme}://host/path?x=1", {"durability": "fsync", "archive": True}),
        (f"{scheme}:~/path", {"durability": "none", "archive": False}),
    ]
    assert caplog.messages == []


@pytest.mark.parametrize("scheme", BUILT_IN)
def test_a_plug_in_cannot_take_a_built_in_scheme(scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not isinstance(open_store(f"{scheme}:{tmp_path}/x", plugins({scheme: Made})), Made)


@pytest.mark.parametrize("scheme", [*BUILT_IN, *SERVERS])
async def test_a_store_is_made_without_opening_anything(scheme: str, tmp_path: Path) -> None:
    """Nothing listens on port 1, and the folder is not made."""
    at = f"{scheme}:{tmp_path}/new/x" if scheme in ("jsonl", "sqlite") else f"{scheme}://127.0.0.1:1/0"
    made = open_store(at)
    assert isinstance(made, Store)
    await made.close()
    assert list(tmp_path.iterdir()) == []


def test_a_plug_ins_store_is_made_with_the_whole_url() -> None:
    made = open_store("fancy://host/path?x=1", plugins({"fancy": Made}))
    assert isinstance(made, Made)
    assert made.url == "fancy://host/path?x=1"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, []),
        ({"durability": "fsync", "archive": True}, []),
        ({"durability": "flush"}, ["durability is ignored"]),
        ({"archive": False}, ["archive is ignored"]),
        ({"durability": "none", "archive": False}, ["durability and archive are ignored"]),
    ],
    ids=str,
)
def test_settings_that_a_plug_ins_store_does_not_get_are_named(
    asked: dict[str, Any], named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    open_store(f"fancy://me:{PASSWORD}@host", plugins({"fancy": Made}), **asked)
    because = "the plug-in of fancy: has no such parameter"
    assert caplog.messages == [f"store: {text}: {because}" for text in named]


@pytest.mark.parametrize("url", ["", "memory", "sqlite", "sessions", "me@host/x", "./me@host"])
def test_a_url_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^store: is not a URL; a store's URL begins with a scheme, like 'jsonl:FOLDER'"
    ):
        open_store(url, Plugins())


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/some/folder", "jsonl:/some/folder"),
        ("~/sessions", "jsonl:~/sessions"),
        ("./here", "jsonl:./here"),
        ("a/b", "jsonl:a/b"),
        ("C:\\sessions", "jsonl:C:\\sessions"),
        ("agents.db", "sqlite:agents.db"),
        ("/var/lib/agents.sqlite", "sqlite:/var/lib/agents.sqlite"),
        ("~/agents.sqlite3", "sqlite:~/agents.sqlite3"),
    ],
)
def test_a_path_without_a_scheme_is_answered_with_the_url_it_may_mean(path: str, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(path, Plugins())
    assert str(caught.value) == f"store: {path!r} is not a URL; a store's URL begins with a scheme: {url}"


def test_a_folder_that_is_there_is_answered_with_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sessions").mkdir()
    with pytest.raises(ConfigError, match=r"a store's URL begins with a scheme: jsonl:sessions$"):
        open_store("sessions", Plugins())


@pytest.mark.parametrize("scheme", SERVERS)
def test_a_store_whose_package_is_not_installed_is_an_error_that_names_it(scheme: str) -> None:
    extra = "redis" if scheme.startswith("redis") else "postgresql"
    with pytest.raises(ConfigError) as caught:
        open_store(f"{scheme}://me:{PASSWORD}@127.0.0.1:1/0", Plugins())
    assert f"pip install 'amplifier-context-servers[{extra}]'" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_plug_in_that_refuses_a_url_says_why() -> None:
    def refuse(url: str) -> Any:
        raise ConfigError("store", "names no server")

    with pytest.raises(ConfigError, match=r"^store: names no server$"):
        open_store("fancy://x", plugins({"fancy": refuse}))


def test_an_unknown_scheme_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match="'nosuch' is not known") as caught:
        open_store("nosuch://x", plugins({"fancy": Made}))
    for scheme in ("memory", "fancy", *BUILT_IN, *SERVERS):
        assert scheme in str(caught.value)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="no store"):
        open_store("odd://x", plugins({"odd": lambda url: object()}))  # pyright: ignore[reportUnknownLambdaType]


def test_a_store_that_cannot_be_made_names_its_plug_in() -> None:
    def broken(url: str) -> Any:
        raise RuntimeError("disk on fire")

    with pytest.raises(PluginError, match=r"my-stores.*RuntimeError"):
        open_store("broken://x", plugins({"broken": broken}))


# -- drivers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [
        ("psycopg", "postgresql://127.0.0.1:1/x", "postgresql"),
        ("psycopg", "postgres://127.0.0.1:1/x", "postgresql"),
        ("psycopg_pool", "postgresql://127.0.0.1:1/x", "postgresql"),
        ("redis", "redis://127.0.0.1:1/0", "redis"),
        ("redis", "rediss://127.0.0.1:1/0", "redis"),
    ],
)
def test_a_missing_driver_is_an_error_that_names_what_to_install(driver: str, url: str, extra: str) -> None:
    """In a process of its own, which has not imported the driver yet."""
    script = (
        "import sys\n"
        f"sys.modules[{driver!r}] = None\n"
        "from amplifier_context_core import ConfigError\n"
        "from amplifier_context_core.stores import open_store\n"
        f"try: open_store({url!r})\n"
        "except ConfigError as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert f"pip install 'amplifier-context-servers[{extra}]'" in done.stdout


def test_drivers_are_not_loaded_before_they_are_used() -> None:
    script = (
        "import sys\n"
        "from amplifier_context_core.stores import open_store\n"
        "open_store('memory:')\n"
        "open_store('jsonl:/nowhere/x')\n"
        "open_store('sqlite:/nowhere/x')\n"
        "print(sorted({'psycopg', 'psycopg_pool', 'redis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"


def test_a_module_that_is_missing_inside_a_store_is_not_mistaken_for_its_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "amplifier_context_servers.redis_server.store", None)
    with pytest.raises(PluginError, match="ModuleNotFoundError"):
        open_store("redis://127.0.0.1:1/0")


# -- URLs that cannot be used -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "jsonl:",
        "sqlite:",
        "jsonl:a\0b",
        "sqlite:a\0b",
        f"sqlite://me:{PASSWORD}@/x",
        f"jsonl://me:{PASSWORD}@host/x",
        "sqlite:///tmp/x",
        "sqlite::memory:",
        "sqlite:file:x?mode=ro",
        "sqlite: x",
        "sqlite:x\n",
        "jsonl:a\x1b[2J",
        "memory:x",
        "memory://host/x",
        f"postgresql://me:{PASSWORD}@host:port/x",
        f"postgresql://me:12#{PASSWORD}@host/x",
        f"postgresql://me:{PASSWORD}@host/x?dbname=y",
        f"postgresql://me:{PASSWORD}@host/x?host=y",
        f"postgresql://me:pass@{PASSWORD}@host/x",
        f"redis://me:pass@{PASSWORD}@host/0",
        f"postgresql://me:{PASSWORD}@host/x?password=y",
        f"postgresql://me@host/x?password={PASSWORD}&password=y",
        f"postgresql://me:{PASSWORD}@host/x?pool_size=2.7",
        "postgresql://",
        f"redis://me:{PASSWORD}@host/abc",
        f"redis://me:{PASSWORD}@host/-1",
        f"redis://me:{PASSWORD}@host/+1",
        f"redis://me:{PASSWORD}@host/1_0",
        f"redis://me:{PASSWORD}@host/\u0663",
        f"redis://me:{PASSWORD}@host/%31",
        f"redis://me:{PASSWORD}@host/2147483648",
        f"redis://me:{PASSWORD}@host/99999999999999999999",
        f"redis://me:{PASSWORD}@host/1/2",
        f"redis://me:{PASSWORD}@host/0/",
        f"redis://me:{PASSWORD}@host?db=abc",
        f"redis://me:{PASSWORD}@host?db=-1",
        f"redis://me:{PASSWORD}@host?db=",
        f"redis://me:{PASSWORD}@host/3?db=4",
        f"redis://me:{PASSWORD}@host?db=3&db=4",
        f"redis://:12#{PASSWORD}@host/0",
        f"redis://me:{PASSWORD}@/0",
        f"redis:{PASSWORD}@host/0",
        "redis:///0",
        "redis://",
        f"postgresql://me:{PASSWORD}@[::1/x",
        f"postgresql://me:{PASSWORD}@host/x?no_such_setting=1",
        f"postgresql://me:%zz{PASSWORD}@host/x",
        f"redis://me:{PASSWORD}@host:port/0",
        f"redis://me:{PASSWORD}@[::1/0",
        f"redis://me:{PASSWORD}@host:99999999/0",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_quoting_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^store: ") as caught:
        open_store(url)
    assert PASSWORD not in traceback_text(caught.value)
    assert caught.value.key == "store"


@pytest.mark.parametrize("url", ["sqlite://me:hunter2@/x", "jsonl://me:hunter2@host/x"])
def test_the_command_line_does_not_quote_a_password_in_a_path(url: str) -> None:
    done = CliRunner().invoke(main, ["sessions", "--store", url])
    assert done.exit_code == 1
    assert PASSWORD not in done.output
    assert "after it comes" in done.output


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("redis://host", 0),
        ("redis://host/", 0),
        ("redis://host/0", 0),
        ("redis://host/15", 15),
        ("redis://host?db=7", 7),
    ],
)
def test_a_redis_url_names_one_database(url: str, database: int) -> None:
    read, _ = parse_redis_url(url, "fsync")
    assert read.display_name == f"Redis at host:6379, database {database}"


def test_a_url_of_postgresql_may_leave_out_the_server() -> None:
    """libpq then goes to the socket of this machine."""
    read, _ = parse_postgres_url("postgresql:///things?schema=mine", "fsync")
    assert (read.display_name, read.schema) == ("PostgreSQL at the local server:5432, database 'things'", "mine")


@pytest.mark.parametrize("url", [PASSWORD, f"//me-{PASSWORD}@host", f"mysql://me:{PASSWORD}@host/x"])
def test_text_that_is_no_url_is_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url, Plugins())
    assert PASSWORD not in traceback_text(caught.value)


@pytest.mark.parametrize(
    "url", [f"postgresql://me:{PASSWORD}@127.0.0.1:1/x?connect_timeout=2", f"redis://me:{PASSWORD}@127.0.0.1:1/0"]
)
async def test_a_store_never_shows_its_password(url: str) -> None:
    made = open_store(url)
    assert PASSWORD not in repr(made)
    await made.close()


def traceback_text(problem: BaseException) -> str:
    """Return the text of a traceback of an error, its causes included."""
    texts = [repr(problem), str(problem)]
    shown = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    return "\n".join([*texts, traceback_text(shown)] if shown else texts)
