"""The commands that decide what a stored session shows: `compact`, `pin`, `unpin`, `pins`; and the store's variable."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from tests.cli.kept import keep
from tests.managers import ask, feed
from tests.messages import work


def run(*arguments: str, url: str, fails: bool = False) -> str:
    done = CliRunner().invoke(main, [*arguments, "--store", url])
    assert (done.exit_code != 0) is fails, done.output
    return done.output


async def kept(url: str) -> None:
    manager = ContextManager(load_config({"max_tokens": 20_000}), session_id="one", store=open_store(url))
    await feed(manager, work(30, output=1_500))
    await ask(manager)
    await manager.close()


@pytest.fixture
def session(url: str) -> str:
    asyncio.run(kept(url))
    return url


def used(url: str) -> int:
    return json.loads(run("context", "one", "--json", url=url))["used"]


def test_a_dry_run_says_what_a_compaction_does_and_changes_nothing(session: str) -> None:
    before = used(session)
    said = json.loads(run("compact", "one", "--dry-run", "--json", url=session))
    assert said["after_tokens"] < said["before_tokens"] == before
    printed = run("compact", "one", "--dry-run", url=session)
    assert "would be folded: " in printed
    assert used(session) == before
    done = json.loads(run("compact", "one", "--json", url=session))
    assert (done["before_tokens"], done["after_tokens"]) == (said["before_tokens"], said["after_tokens"])
    assert used(session) == done["after_tokens"]


def test_only_what_is_between_the_marks_changes(session: str) -> None:
    done = json.loads(run("compact", "one", "--from", "m20", "--to", "m31", "--json", url=session))
    assert done["compacted"]
    assert done["rounds"]
    assert all(20 <= int(row["mark"][1:]) <= 31 for row in done["rounds"])
    kept = [line.split()[0] for line in run("view", "one", url=session).splitlines() if line.split()[0] != "-"]
    assert {f"m{seq}" for seq in range(1, 20)} <= set(kept)
    assert "no mark" in run("compact", "one", "--from", "20", url=session, fails=True)


def test_the_log_of_compactions_is_kept_with_the_session(session: str) -> None:
    assert run("explain", "one", "--history", url=session) == "one was not compacted\n"
    run("compact", "one", url=session)
    row = json.loads(run("explain", "one", "--history", "--json", url=session))
    assert row["trigger"] == "manual"
    assert row["after_tokens"] < row["before_tokens"]
    assert "fold" in row["strategies"]
    assert "manual, " in run("explain", "one", "--history", url=session)


def test_undo_takes_it_back(session: str) -> None:
    before = used(session)
    run("compact", "one", url=session)
    assert used(session) < before
    run("undo", "one", url=session)
    assert used(session) == before


def test_nothing_to_free_is_an_error_that_says_so(url: str) -> None:
    keep(url, "one", work(1))
    assert "nothing could be freed" in run("compact", "one", url=url, fails=True)


def test_a_pin_keeps_a_round_through_a_compaction_until_it_is_taken_back(session: str) -> None:
    assert "m4 pinned" in run("pin", "one", "m4", url=session)
    assert run("pins", "one", url=session).split()[0] == "m4"
    assert json.loads(run("pins", "one", "--json", url=session))["mark"] == "m4"
    run("compact", "one", url=session)
    view = run("view", "one", url=session)
    assert any(line.split()[0] == "m4" for line in view.splitlines())
    run("unpin", "one", "m4", url=session)
    assert run("pins", "one", url=session) == "one has no pins\n"


@pytest.mark.parametrize(("mark", "reason"), [("m999", "m999"), ("4", "no mark")])
def test_what_cannot_be_pinned_is_named(session: str, mark: str, reason: str) -> None:
    assert reason in run("pin", "one", mark, url=session, fails=True)


@pytest.mark.parametrize("command", [("compact",), ("pins",), ("pin", "m1"), ("unpin", "m1")])
def test_a_session_that_is_not_there_is_named(session: str, command: tuple[str, ...]) -> None:
    assert "there is no session 'two'" in run(command[0], "two", *command[1:], url=session, fails=True)


def test_the_variable_names_the_store_and_the_option_goes_before_it(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", session)
    done = CliRunner().invoke(main, ["sessions", "--json"])
    assert json.loads(done.output)["session_id"] == "one"
    done = CliRunner().invoke(main, ["sessions", "--store", "sqlite:elsewhere.db"])
    assert "elsewhere.db" in done.output
