"""The commands on a session of context-summary: they open it as the manager that wrote it does."""

import asyncio
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from amplifier_context_cli import stored_managers
from amplifier_context_core.stores import Store, open_store
from tests.cli.kept import rows, run, viewed
from tests.messages import text
from tests.summary.scripted import BUDGET, SESSION, WORDS, Provider, drive, good, summary_manager, view_of

pytestmark = pytest.mark.kernel


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", url)
    return url


async def kept(store: Store) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Keep a session with a chapter of a model; return its report and its next view."""
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, SESSION)
    await manager.close()
    manager = summary_manager(None, store=store, max_tokens=BUDGET)
    view = await manager.get_messages_for_request()
    await manager.close()
    manager = summary_manager(None, store=store)
    report = await manager.explain()
    await manager.close()
    return report, view


def test_commands_show_the_chapter_that_the_model_wrote_and_what_it_cost(url: str) -> None:
    report, view = asyncio.run(kept(open_store(url)))
    shown = viewed("s")
    assert WORDS in text(shown)
    assert shown == view
    (printed,) = rows("explain", "s")
    assert printed["summary"] == report["summary"]
    assert printed["summary"]["calls"] > 0
    cost = f"cost {report['summary']['summary_cost']:,} beside "
    assert cost in run("explain", "s").output


def test_undo_drops_what_the_model_knew_of_the_range(url: str) -> None:
    async def state() -> tuple[int, bool]:
        manager = summary_manager(None, store=open_store(url))
        view = await view_of(manager)
        records = manager.records.valid()
        await manager.close()
        return len(records), WORDS in text(view)

    asyncio.run(kept(open_store(url)))
    before, worded = asyncio.run(state())
    assert before
    assert worded
    assert "are shown" in run("undo", "s", "--yes").output
    after, _ = asyncio.run(state())
    assert after < before


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def (", "SyntaxError: "),
        ("import no_such_driver", "ModuleNotFoundError: No module named 'no_such_driver'"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def stored_manager(settings): ...", "TypeError: "),
    ],
)
def test_a_session_of_a_package_that_fails_is_read_without_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    _, view = asyncio.run(kept(open_store(url)))
    (tmp_path / "a_broken_package.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "a_broken_package", raising=False)
    point = EntryPoint("context-summary", "a_broken_package:mount", "amplifier.modules")

    def only_that(group: str) -> list[EntryPoint]:
        return [point] if point.group == group else []

    monkeypatch.setattr(stored_managers, "entry_points", only_that)
    for command in ("view", "explain", "search", "undo"):
        words = ["module_3"] if command == "search" else []
        done = run(command, "s", *words, "--yes" if command == "undo" else "--json")
        assert f"by the module context-summary, which cannot be loaded from a_broken_package ({reason}" in done.stderr
        assert "Reinstall the package a_broken_package" in done.stderr
        if command == "view":
            assert [json.loads(line) for line in done.stdout.splitlines()] == [{"mark": ANY, **one} for one in view]
