"""`amplifier-context undo`: a chapter of a stored session is taken back, and the command says what is shown instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from tests.messages import text, work


async def session(url: str, **config: Any) -> int:
    """A stored session with one chapter; tokens of its budget."""
    manager = ContextManager(load_config({"max_tokens": 6_000, **config}), session_id="s", store=open_store(url))
    for message in work(12, output=900):
        await manager.add_message(message)
    await manager.get_messages_for_request(6_000)
    await manager.compact()
    assert "<context_record>" in text(await manager.get_messages_for_request(6_000))
    await manager.close()
    return 6_000


async def test_undo_shows_the_originals_of_the_newest_chapter_again(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    budget = await session(url)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["undo", "s", "--store", url])
    assert done.exit_code == 0, done.output
    assert "its originals are shown again" in done.output
    manager = ContextManager(load_config({}), session_id="s", store=open_store(url))
    assert "<context_record>" not in text(await manager.get_messages_for_request(budget))
    await manager.close()
    again = await asyncio.to_thread(CliRunner().invoke, main, ["undo", "s", "--store", url])
    assert again.exit_code == 1
    assert "nothing is folded" in again.output


async def test_undo_of_what_is_no_mark_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    await session(url)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["undo", "s", "twelve", "--store", url])
    assert done.exit_code == 2
    assert "mark" in done.output


@pytest.mark.parametrize(
    "config", [{"token_counter": "heuristic", "target_usage": 0.2}, {"compact_threshold": 0.3, "target_usage": 0.2}]
)
async def test_undo_opens_a_session_with_its_own_settings(tmp_path: Path, config: dict[str, Any]) -> None:
    """With the settings of another session its checkpoint would not be used, or the originals would seem to fit."""
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    await session(url, **config)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["undo", "s", "--store", url])
    assert done.exit_code == 0, done.output
    fits = "compact_threshold" not in config
    assert ("originals are shown again" in done.output) is fits


async def test_undo_with_a_budget_shows_originals_that_fit_that_budget(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    await session(url, compact_threshold=0.3, target_usage=0.2)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["undo", "s", "--store", url, "--budget", "64k"])
    assert done.exit_code == 0, done.output
    assert "originals are shown again" in done.output
    manager = ContextManager(load_config({"compact_threshold": 0.3}), session_id="s", store=open_store(url))
    assert "<context_record>" not in text(await manager.get_messages_for_request(64_000))
    await manager.close()
