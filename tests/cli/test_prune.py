"""The command `prune`: old families of sessions go whole, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from amplifier_context_cli import prune
from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager
from amplifier_context_core.stores import open_store
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


def test_a_dry_run_lists_and_erases_nothing(stored: str) -> None:
    printed = run(stored, "--keep", "0", "--dry-run")
    assert all(f"{name}: " in printed for name in ("a", "a-fork", "b", "c"))
    assert "4 sessions of 4 would be erased" in printed
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


def test_it_asks_first_and_no_answer_erases_nothing(stored: str) -> None:
    assert "Erase 4 sessions of 4" in run(stored, "--keep", "0", stdin="n\n", code=1)
    assert there(stored) == {"a", "a-fork", "b", "c"}


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


@pytest.mark.parametrize("arguments", [(), ("--older-than", "soon"), ("--older-than", "-1d"), ("--keep", "-1")])
def test_what_names_no_sessions_is_refused(stored: str, arguments: tuple[str, ...]) -> None:
    run(stored, *arguments, code=2)
    assert there(stored) == {"a", "a-fork", "b", "c"}
