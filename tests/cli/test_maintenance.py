"""The commands that look after stored sessions, run as a user runs them, on real stores."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from pathlib import Path

import pytest

from amplifier_context_cli.maintenance import INCOMPLETE
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import Extent, open_store
from amplifier_context_core.stores.protocol import OnRepair
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing.contract.samples import entry
from tests.cli.kept import Run, fill, messages, opened
from tests.stores.jsonl.files import garble


def test_a_search_without_a_match_is_reported(run: Run, filled: str) -> None:
    at = ("--store", filled)
    assert run("show", "one", "--from", "m9999", *at).output == (
        f"one has no message from m9999 on in {filled}; its newest is m121\n"
    )
    assert run("show", "one", "--archived", *at).output == f"one has no archived messages in {filled}\n"
    for name in ("one", "two"):
        run("delete", name, "--yes", *at)
    assert f"0 of 0 sessions copied from {filled} to {filled}2" in run("copy", filled, f"{filled}2").output


def test_copied_sessions_are_listed_in_the_same_order(run: Run, url: str, tmp_path: Path) -> None:
    def listed(where: str) -> list[str]:
        rows = run("sessions", "--store", where, "--json").output.splitlines()
        return [json.loads(row)["session_id"] for row in rows]

    for name in "bdac":
        asyncio.run(fill(url, name, 1, 1))
        time.sleep(0.02)
    assert listed(url) == list("cadb")
    for other in (f"jsonl:{tmp_path / 'j'}", f"sqlite:{tmp_path / 's.db'}"):
        run("copy", url, other)
        assert listed(other) == list("cadb")


def test_verify_names_the_command_that_repairs(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'with a blank'}"
    for name in ("one", "two too"):
        asyncio.run(fill(url, name, 30, 4))
        garble(tmp_path / "with a blank" / name / "context.db", 11)
    output = run("verify", "--store", url, code=1).output
    assert re.search(r"^one: (1 problem|\d+ problems)$", output, re.MULTILINE)
    commands = re.findall("`(.*)` repairs what can be repaired", output)
    assert [shlex.split(command)[-1] for command in commands] == ["two too", "one"]
    for command in commands:
        run(*shlex.split(command)[1:])
    run("verify", "--store", url)


@pytest.mark.parametrize(
    "arguments",
    [("sessions",), ("show", "one"), ("verify",), ("repair", "one"), ("fork", "one"), ("delete", "one", "--yes")],
)
def test_a_mistyped_url_is_reported_and_nothing_is_created_there(
    run: Run, url: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    output = run(*arguments, "--store", url, code=1).output
    assert re.fullmatch(r"Error: there is no (folder|database) \S+; check the URL\n", output)
    assert list(tmp_path.iterdir()) == []


def test_copying_into_memory_is_refused(run: Run, filled: str) -> None:
    for places in ((filled, "memory:"), ("memory:", filled)):
        assert "name a persistent store, such as sqlite:FILE" in run("copy", *places, code=1).output
    assert "FROM: is not a URL" in run("copy", "a", filled, code=1).output
    assert "TO: is not a URL" in run("copy", filled, "b", code=1).output


@pytest.mark.parametrize(("mark", "count"), [("m30", 30), ("u1", 1), ("a1", None)])
def test_a_fork_ends_at_its_mark(run: Run, filled: str, mark: str, count: int | None) -> None:
    run("fork", "one", "branch", "--at", mark, "--store", filled)
    forked = messages(run, "branch", filled)
    assert forked == messages(run, "one", filled)[: len(forked)]
    if count:
        assert len(forked) == count


def test_a_fork_at_no_place_is_an_error(run: Run, filled: str) -> None:
    assert "no m999" in run("fork", "one", "--at", "m999", "--store", filled, code=1).output
    assert "is not a mark" in run("fork", "one", "--at", "x1", "--store", filled, code=1).output
    assert "already" in run("fork", "one", "two", "--store", filled, code=1).output


def test_a_deleted_session_is_gone_and_only_after_a_yes(run: Run, filled: str) -> None:
    run("delete", "one", "--store", filled, stdin="n\n", code=1)
    assert len(messages(run, "one", filled)) == 121
    run("delete", "one", "--store", filled, stdin="y\n")
    assert "one" not in run("sessions", "--store", filled).output
    assert len(messages(run, "two", filled)) == 41


def test_sessions_are_copied_with_archive_and_checkpoint(run: Run, filled: str, tmp_path: Path) -> None:
    async def edited() -> list[str]:
        store = open_store(filled)
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="one", store=store)
        history = await manager.get_messages()
        await manager.set_messages([*history[:100], *history[101:]])
        archived = [entry.mark for entry in await store.archived("one")]
        await manager.close()
        return archived

    archived = asyncio.run(edited())
    assert archived
    other = f"sqlite:{tmp_path / 'copy.db'}" if filled.startswith("jsonl") else f"jsonl:{tmp_path / 'copy'}"
    assert "2 of 2 sessions copied" in run("copy", filled, other).output
    assert messages(run, "one", other) == messages(run, "one", filled)
    shown = run("show", "one", "--archived", "--store", other).output.splitlines()
    assert [line.split()[0] for line in shown] == archived

    async def resumed(url: str) -> str:
        manager = ContextManager(
            load_config({"token_counter": "heuristic", "max_tokens": 8_000}),
            session_id="two",
            store=open_store(url),
        )
        view = json.dumps(await manager.get_messages_for_request())
        await manager.close()
        return view

    assert asyncio.run(resumed(filled)) == asyncio.run(resumed(other))
    again = run("copy", filled, other).output
    assert "0 of 2" in again
    assert "exists there, not changed" in again


def test_a_session_in_use_is_shown_but_not_changed(run: Run, filled: str) -> None:
    with opened(filled, "one"):
        assert len(messages(run, "one", filled)) == 121
        for command in ("delete one --yes", "forget one m2 --yes", "repair one", "rewind one m1 --yes"):
            output = run(*command.split(), "--store", filled, code=1).output
            assert re.fullmatch(
                r"Error: session 'one' is in use by pid .*; end that process and repeat the command\n", output
            )
        assert "pid" in run("sessions", "--store", filled).output


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "sqlite:/proc/none/x.db"])
def test_an_unusable_store_is_reported_in_a_sentence(run: Run, url: str) -> None:
    done = run("sessions", "--store", url, code=1)
    assert done.output.startswith("Error: ")
    assert "Traceback" not in done.output


def test_a_copy_gives_no_seq_again_that_was_given(run: Run, url: str, tmp_path: Path) -> None:
    async def fill() -> None:
        store = open_store(url, archive=False)
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="one", store=store)
        for text in "abcd":
            await manager.add_message({"role": "user", "content": text})
        await manager.set_messages((await manager.get_messages())[:2])
        await manager.close()

    async def extent(where: str) -> tuple[int, int]:
        store = open_store(where)
        found = await store.extent("one")
        await store.close()
        return found.length, found.last_seq

    asyncio.run(fill())
    other = f"jsonl:{tmp_path / 'other'}"
    run("copy", url, other)
    assert asyncio.run(extent(url)) == asyncio.run(extent(other)) == (2, 4)


def test_what_an_interrupted_copy_left_is_copied_again(run: Run, filled: str, tmp_path: Path) -> None:
    other, third = f"jsonl:{tmp_path / 'other'}", f"sqlite:{tmp_path / 'third.db'}"

    async def begin() -> None:
        store = open_store(other)
        await store.save_checkpoint("one", 0, INCOMPLETE)
        source = open_store(filled)
        await store.append("one", await source.read("one", 0, 2))
        await source.close()
        await store.close()

    asyncio.run(begin())
    run("copy", other, third)
    for target in (other, third):
        assert "1 of 1 session copied" in run("copy", filled, target, "--session", "one").output
        assert messages(run, "one", target) == messages(run, "one", filled)
        assert "one: exists there, not changed" in run("copy", filled, target).output


@pytest.mark.parametrize("change", ["append", "edit"])
def test_an_incomplete_copy_that_a_host_went_on_with_is_not_copied_again(
    run: Run, filled: str, tmp_path: Path, change: str
) -> None:
    other = f"jsonl:{tmp_path / 'other'}"

    async def go_on() -> list[Entry]:
        store = open_store(other)
        await store.save_checkpoint("one", 0, INCOMPLETE)
        await store.append("one", [entry(1, session_id="one"), entry(2, session_id="one")])
        await store.replace("one", 2 if change == "append" else 1, [entry(3, "of the host", session_id="one")])
        if change == "edit":
            await store.replace("one", 1, [])
        kept = [*await store.read("one"), *await store.archived("one")]
        await store.close()
        return kept

    async def kept() -> list[Entry]:
        store = open_store(other)
        found = [*await store.read("one"), *await store.archived("one")]
        await store.close()
        return found

    before = asyncio.run(go_on())
    output = run("copy", filled, other).output
    assert "one: exists there, not changed; it is an incomplete copy with changes of its own" in output
    assert asyncio.run(kept()) == before


def test_a_session_that_a_host_creates_during_a_copy_is_not_changed(
    run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, opened_first = f"sqlite:{tmp_path / 'other.db'}", SqliteStore.open

    async def open_late(store: SqliteStore, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        monkeypatch.setattr(SqliteStore, "open", opened_first)
        host = open_store(other)
        await host.append(session_id, [entry(1, "of the host", session_id=session_id)])
        await host.close()
        return await store.open(session_id, on_repair)

    monkeypatch.setattr(SqliteStore, "open", open_late)
    assert "one: exists there, not changed\n" in run("copy", filled, other, "--session", "one", code=1).output
    assert "of the host" in str(messages(run, "one", other))


def test_a_rewind_archives_what_came_later_and_the_session_goes_on_from_there(run: Run, filled: str) -> None:
    at = ("--store", filled)
    before = messages(run, "one", filled)
    assert run("rewind", "one", "m999", *at, code=1).output.startswith("Error: the history of one has no m999")
    assert run("rewind", "one", "m30; rm", *at, code=1).output.startswith("Error: 'm30; rm' is not a mark")
    run("rewind", "one", "m60", *at, stdin="n\n", code=1)
    assert messages(run, "one", filled) == before
    assert (
        "60 messages; the 61 messages after m60 are in its archive" in run("rewind", "one", "m60", *at, "--yes").output
    )
    assert messages(run, "one", filled) == before[:60]
    assert messages(run, "one", filled, "--archived") == before[60:]
    assert "m60 is its newest message" in run("rewind", "one", "m60", *at).output
    assert "one: sound" in run("verify", "one", *at).output
    view = [json.loads(line) for line in run("view", "one", "--json", *at).output.splitlines()]
    assert "m61" not in json.dumps(view)
