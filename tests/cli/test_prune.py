"""The command `prune`: old families of sessions go whole, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from amplifier_context_cli import prune
from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager
from amplifier_context_core.stores import SessionInfo, open_store
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


def there(url: str) -> set[str]:
    done = CliRunner().invoke(main, ["sessions", "--json", "--store", url])
    return set(re.findall(r'"session_id": ?"([^"]+)"', done.output))


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
    async def while_open() -> str:
        store = open_store(stored)
        await store.open("b")
        try:
            return await asyncio.to_thread(run, stored, "--keep", "0", "--yes")
        finally:
            await store.close()

    asyncio.run(while_open())
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
    async def while_open() -> str:
        store = open_store(stored)
        await store.open("a-fork")
        try:
            return await asyncio.to_thread(run, stored, "--keep", "0", "--yes", code=1)
        finally:
            await store.close()

    monkeypatch.setattr(prune, "_may_go", lambda *_: True)
    assert "2 sessions erased" in asyncio.run(while_open())
    assert there(stored) == {"a", "a-fork"}


def test_a_session_whose_time_is_unknown_is_kept() -> None:
    info = SessionInfo("a", length=1, updated="1970-01-01T00:00:00.000+00:00")
    assert not prune._may_go([info], timedelta(hours=1))
