"""The command `prune`: old families of sessions go whole, and nothing else. `sessions` lists by the same ages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from amplifier_context_cli import prune, sessions
from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager
from amplifier_context_core.stores import SessionInfo, open_store
from tests.cli.kept import keep, opened, run_at
from tests.managers import feed
from tests.messages import work


class Later(datetime):
    """The time in 40 days."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + timedelta(days=40)


def run(url: str, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["prune", "--store", url, *arguments], input=stdin)
    assert done.exit_code == code, done.output
    return done.output


async def make(url: str, names: Iterable[str]) -> None:
    store = open_store(url)
    for name in names:
        manager = ContextManager(session_id=name, store=store)
        await feed(manager, work(2))
        await manager.close()
    await store.fork("a", "a-fork", 3)
    await store.close()


def there(url: str, *options: str) -> set[str]:
    return set(re.findall(r'"session_id": ?"([^"]+)"', run_at(url, "sessions", "--json", *options)))


@pytest.fixture
def stored(url: str) -> str:
    asyncio.run(make(url, ("a", "b", "c")))
    return url


def test_a_dry_run_a_no_and_what_names_no_sessions_erase_nothing(stored: str) -> None:
    printed = run(stored, "--keep", "0", "--dry-run")
    assert all(f"{name}: " in printed for name in ("a", "a-fork", "b", "c"))
    assert "4 sessions of 4 would be erased" in printed
    assert "Erase 4 sessions of 4" in run(stored, "--keep", "0", stdin="n\n", code=1)
    for arguments in ((), ("--older-than", "soon"), ("--older-than", "-1d"), ("--keep", "-1")):
        run(stored, *arguments, code=2)
    assert there(stored) == {"a", "a-fork", "b", "c"}


def test_the_families_changed_last_are_kept(stored: str) -> None:
    run(stored, "--keep", "1", "--yes")
    assert there(stored) == {"a", "a-fork"}  # the fork is the newest, and its family stays whole


def test_what_is_younger_than_the_age_is_kept(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0 sessions" in run(stored, "--older-than", "30d", "--yes")
    monkeypatch.setattr(prune, "datetime", Later)
    assert "0 sessions" in run(stored, "--older-than", "8w", "--yes")
    run(stored, "--older-than", "30d", "--yes")
    assert there(stored) == set()


def test_both_options_erase_only_what_both_name(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "datetime", Later)
    run(stored, "--older-than", "30d", "--keep", "2", "--yes")
    assert {"a", "a-fork"} < there(stored)
    assert len(there(stored)) == 3


def test_a_session_that_is_open_keeps_its_family(stored: str) -> None:
    with opened(stored, "b"):
        run(stored, "--keep", "0", "--yes")
    assert "b" in there(stored)


def test_what_changes_while_it_asks_is_kept_with_its_family(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def add() -> None:
        store = open_store(stored)
        await feed(ContextManager(session_id="a-fork", store=store), work(1))
        await store.close()

    def confirm(*_: object, **__: object) -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, add()).result()

    monkeypatch.setattr(prune.click, "confirm", confirm)
    run(stored, "--keep", "0", code=1)
    assert there(stored) == {"a", "a-fork"}


def test_a_fork_that_is_opened_after_the_list_was_made_keeps_its_family(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "_may_go", lambda *_: True)
    with opened(stored, "a-fork"):
        assert "2 sessions erased" in run(stored, "--keep", "0", "--yes", code=1)
    assert there(stored) == {"a", "a-fork"}


def test_a_session_whose_time_is_unknown_is_kept_and_has_no_age() -> None:
    info, hour = SessionInfo("a", length=1, updated="1970-01-01T00:00:00.000+00:00"), timedelta(hours=1)
    assert not prune._may_go([info], hour)
    assert not sessions._is_between(info, hour, None)
    assert sessions._is_between(info, None, None)


def test_sessions_are_listed_by_age_by_title_and_by_number(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {"a", "a-fork", "b", "c"}
    assert len(there(stored, "--last", "1")) == 1
    assert (there(stored, "--newer-than", "1h"), there(stored, "--older-than", "1h")) == (everything, set())
    monkeypatch.setattr(sessions, "datetime", Later)
    assert (there(stored, "--newer-than", "6w"), there(stored, "--older-than", "6w")) == (everything, set())
    assert (there(stored, "--newer-than", "30d"), there(stored, "--older-than", "30d")) == (set(), everything)
    for name in ("d", "e"):
        keep(stored, name, ["Mend the PARSER first."])
    assert there(stored, "--older-than", "999999w") == set()
    assert there(stored, "--match", "the parser") == {"d", "e"}
    assert there(stored, "--match", "the parser", "--last", "1") == {"e"}
    assert "none of 6 sessions in" in run_at(stored, "sessions", "--match", "zyzzyva")
