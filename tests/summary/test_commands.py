"""The commands on a session of context-summary: they open it as the manager that wrote it does."""

import asyncio
import json
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


def test_commands_show_what_the_model_wrote_and_its_cost_and_undo_drops_what_it_knew_of_the_range(url: str) -> None:
    report, view = asyncio.run(kept(open_store(url)))
    assert WORDS in text(view)
    assert viewed("s") == view
    (printed,) = rows("explain", "s")
    assert printed["summary"] == report["summary"]
    assert printed["summary"]["calls"] > 0
    assert f"cost {report['summary']['summary_cost']:,} beside " in run("explain", "s").output

    async def records() -> int:
        manager = summary_manager(None, store=open_store(url))
        await view_of(manager)
        found = manager.records.valid()
        await manager.close()
        return len(found)

    before = asyncio.run(records())
    assert "are shown" in run("undo", "s", "--yes").output
    assert asyncio.run(records()) < before


def test_a_session_of_a_package_that_fails_is_read_without_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = asyncio.run(kept(open_store(url)))
    point = EntryPoint("context-summary", "no_such_package:mount", "amplifier.modules")
    monkeypatch.setattr(stored_managers, "entry_points", lambda group: [point] * (group == point.group))
    done = run("view", "s", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"mark": ANY, **one} for one in view]
    for command in ("view s", "explain s", "search s module_3", "undo s --yes"):
        said = run(*command.split()).stderr
        assert "by the module context-summary, which cannot be loaded from " in said
