"""`compact`, `undo`, `pin`, `unpin`, `pins` decide what a stored session shows; a variable names the store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from tests.cli.kept import keep, run_at
from tests.managers import ask, feed
from tests.messages import text, work


async def kept(url: str, config: dict[str, Any] | None = None) -> None:
    """A session with one request; with a config its last view is compacted."""
    settings = load_config({"max_tokens": 6_000, **config} if config else {"max_tokens": 20_000})
    manager = ContextManager(settings, session_id="one", store=open_store(url))
    await feed(manager, work(12, output=900) if config else work(30, output=1_500))
    await ask(manager)
    if config:
        await manager.compact()
    await manager.close()


@pytest.fixture
def session(url: str) -> str:
    asyncio.run(kept(url))
    return url


def used(url: str) -> int:
    return json.loads(run_at(url, "context", "one", "--json"))["used"]


def test_a_dry_run_says_what_a_compaction_does_and_changes_nothing(session: str) -> None:
    before = used(session)
    said = json.loads(run_at(session, "compact", "one", "--dry-run", "--json"))
    assert said["after_tokens"] < said["before_tokens"] == before
    printed = run_at(session, "compact", "one", "--dry-run")
    assert "would be folded: " in printed
    assert used(session) == before
    small = json.loads(run_at(session, "compact", "one", "--dry-run", "--json", "--budget", "5k"))
    assert small["after_tokens"] < 5_000 < small["before_tokens"] == before
    done = json.loads(run_at(session, "compact", "one", "--json"))
    assert (done["before_tokens"], done["after_tokens"]) == (said["before_tokens"], said["after_tokens"])
    assert used(session) == done["after_tokens"]


def test_only_what_is_between_the_marks_changes(session: str) -> None:
    done = json.loads(run_at(session, "compact", "one", "--from", "m20", "--to", "m31", "--json"))
    assert done["compacted"]
    assert done["rounds"]
    assert all(20 <= int(row["mark"][1:]) <= 31 for row in done["rounds"])
    kept = [line.split()[0] for line in run_at(session, "view", "one").splitlines() if line.split()[0] != "-"]
    assert {f"m{seq}" for seq in range(1, 20)} <= set(kept)
    assert "no mark" in run_at(session, "compact", "one", "--from", "20", fails=True)


def test_the_log_of_compactions_is_kept_with_the_session(session: str) -> None:
    assert run_at(session, "explain", "one", "--history") == "one was not compacted\n"
    run_at(session, "compact", "one")
    row = json.loads(run_at(session, "explain", "one", "--history", "--json"))
    assert row["trigger"] == "manual"
    assert row["after_tokens"] < row["before_tokens"]
    assert "fold" in row["strategies"]
    assert "manual, " in run_at(session, "explain", "one", "--history")


async def view_of(url: str, budget: int) -> str:
    manager = ContextManager(load_config({}), session_id="one", store=open_store(url))
    shown = text(await manager.get_messages_for_request(budget))
    await manager.close()
    return shown


def test_undo_takes_it_back_and_shows_the_originals_of_the_newest_chapter(session: str) -> None:
    before = used(session)
    run_at(session, "compact", "one")
    assert used(session) < before
    assert "<context_record>" in asyncio.run(view_of(session, 20_000))
    assert "newest compaction of one back?" in run_at(session, "undo", "one", fails=True)
    assert used(session) < before
    assert "mark" in run_at(session, "undo", "one", "--yes", "twelve", fails=True)
    assert "its originals are shown again" in run_at(session, "undo", "one", "--yes")
    assert used(session) == before
    assert "<context_record>" not in asyncio.run(view_of(session, 20_000))
    assert "nothing is folded" in run_at(session, "undo", "one", "--yes", fails=True)


LOW = {"compact_threshold": 0.3, "target_usage": 0.2}


@pytest.mark.parametrize(
    ("config", "options", "fits"),
    [
        ({"token_counter": "heuristic", "target_usage": 0.2}, (), True),
        (LOW, (), False),
        (LOW, ("--budget", "64k"), True),
    ],
)
def test_undo_uses_the_settings_of_the_session_and_a_budget(
    url: str, config: dict[str, Any], options: tuple[str, ...], fits: bool
) -> None:
    """With the settings of another session its checkpoint would not be used, or the originals would seem to fit."""
    asyncio.run(kept(url, config))
    assert ("its originals are shown again" in run_at(url, "undo", "one", "--yes", *options)) is fits


def test_nothing_to_free_is_an_error_that_says_so(url: str) -> None:
    keep(url, "one", work(1))
    said = run_at(url, "compact", "one", fails=True)
    assert "nothing could be freed" in said
    assert "of 200,000 tokens; --budget names a smaller window" in said


def test_a_pin_keeps_a_round_through_a_compaction_until_it_is_taken_back(session: str) -> None:
    assert "m4 pinned" in run_at(session, "pin", "one", "m4")
    assert run_at(session, "pins", "one").split()[0] == "m4"
    assert json.loads(run_at(session, "pins", "one", "--json"))["mark"] == "m4"
    run_at(session, "compact", "one")
    view = run_at(session, "view", "one")
    assert any(line.split()[0] == "m4" for line in view.splitlines())
    run_at(session, "unpin", "one", "m4")
    assert run_at(session, "pins", "one") == "one has no pins\n"
    for mark, reason in (("m999", "m999"), ("4", "no mark")):
        assert reason in run_at(session, "pin", "one", mark, fails=True)


def test_the_variable_names_the_store_and_the_option_goes_before_it(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", session)
    done = CliRunner().invoke(main, ["sessions", "--json"])
    assert json.loads(done.output)["session_id"] == "one"
    done = CliRunner().invoke(main, ["sessions", "--store", "sqlite:elsewhere.db"])
    assert "elsewhere.db" in done.output
