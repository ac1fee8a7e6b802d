"""The commands that look after kept sessions, run as a user runs them, on real stores."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.cli import main
from amplifier_context_core.compat import StoredContext
from amplifier_context_core.stores import open_store
from amplifier_context_testing import coding_session

SECRET = "sk-live-4242-topsecret"

Run = Callable[..., Result]


@pytest.fixture(params=["jsonl", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / ('sessions' if request.param == 'jsonl' else 'sessions.db')}"


@pytest.fixture
def run() -> Run:
    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
        done = CliRunner().invoke(main, list(arguments), input=stdin)
        assert done.exit_code == code, done.output
        return done

    return run


async def _filled(address: str, name: str, messages: int, seed: int) -> None:
    store = open_store(address, durability="flush")
    manager = ContextManager(
        load_config({"token_counter": "heuristic", "max_tokens": 8_000}), session_id=name, store=store
    )
    for number, message in enumerate(coding_session(messages, seed)):
        if number == 20:
            await manager.add_message({"role": "user", "content": f"the key is {SECRET}, \x1b[2J keep it"})
        await manager.add_message(message)
    await manager.get_messages_for_request()
    await manager.close()


@pytest.fixture
def filled(address: str) -> str:
    asyncio.run(_filled(address, "one", 120, 1))
    asyncio.run(_filled(address, "two", 40, 2))
    return address


def messages(run: Run, name: str, address: str, *options: str) -> list[dict[str, object]]:
    shown = run("show", name, "--store", address, "--json", *options).output
    return [json.loads(line) for line in shown.splitlines()]


def test_sessions_are_listed_with_their_sizes(run: Run, filled: str) -> None:
    text = run("sessions", "--store", filled).output
    assert re.search(r"^one\s+121", text, re.MULTILINE)
    assert re.search(r"^two\s+41", text, re.MULTILINE)
    listed = [json.loads(line) for line in run("sessions", "--store", filled, "--json").output.splitlines()]
    assert {row["session_id"]: row["length"] for row in listed} == {"one": 121, "two": 41}


def test_no_sessions_is_no_error(run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        run("delete", name, "--yes", "--store", filled)
    assert "no sessions" in run("sessions", "--store", filled).output
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "no sessions" in run("sessions").output
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "arguments",
    [("sessions",), ("show", "one"), ("verify",), ("repair", "one"), ("fork", "one"), ("delete", "one", "--yes")],
)
def test_a_mistyped_address_is_told_and_nothing_is_made_there(
    run: Run, address: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    said = run(*arguments, "--store", address, code=1).output
    assert re.fullmatch(r"Error: there is no (folder|database) \S+; check the address\n", said)
    assert list(tmp_path.iterdir()) == []


def test_copying_from_nowhere_is_refused(run: Run, address: str, tmp_path: Path) -> None:
    assert "Error: there is no " in run("copy", address, f"sqlite:{tmp_path / 'new.db'}", code=1).output
    assert list(tmp_path.iterdir()) == []


def test_copying_into_memory_is_refused(run: Run, filled: str) -> None:
    for places in ((filled, "memory:"), ("memory:", filled)):
        assert "name a store that lasts, such as sqlite:FILE" in run("copy", *places, code=1).output


def test_a_session_without_messages_is_one_like_all_others(run: Run, filled: str, tmp_path: Path) -> None:
    async def note(name: str) -> None:
        store = open_store(filled)
        await StoredContext(store, name).set_context_tokens(3, 4)
        await store.close()

    async def noted(where: str) -> tuple[int, int]:
        store = open_store(where)
        found = await StoredContext(store, "empty").get_context_tokens()
        await store.close()
        return found

    asyncio.run(note("empty"))
    assert "empty: sound" in run("verify", "--store", filled).output
    assert run("show", "empty", "--store", filled).output == ""
    assert "empty: 0 messages, 0 repairs" in run("repair", "empty", "--store", filled).output
    other = f"sqlite:{tmp_path / 'copy.db'}"
    assert "3 of 3 sessions copied" in run("copy", filled, other).output
    assert asyncio.run(noted(other)) == (3, 4)
    assert run("delete", "empty", "--yes", "--store", filled).output == "empty: erased\n"
    assert "empty" not in run("sessions", "--store", filled).output


def test_a_session_is_shown_line_by_line_in_part_and_in_full(run: Run, filled: str) -> None:
    lines = run("show", "one", "--store", filled).output.splitlines()
    assert len(lines) == 121
    assert lines[0].split()[:2] == ["m1", "u1"]
    assert [line.split()[0] for line in run("show", "one", "--store", filled, "--last", "2").output.splitlines()] == [
        "m120",
        "m121",
    ]
    assert run("show", "one", "--store", filled, "--from", "m119").output.splitlines()[0].split()[0] == "m119"
    assert SECRET in run("show", "one", "--store", filled, "--full").output


def test_what_a_tool_printed_cannot_take_over_the_terminal(run: Run, filled: str) -> None:
    assert "\x1b" not in run("show", "one", "--store", filled, "--full").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "ones"),
        ("fork", "ones"),
        ("delete", "ones", "--yes"),
        ("forget", "ones", "m1", "--yes"),
        ("repair", "ones"),
    ],
)
def test_a_session_that_is_not_there_is_told_with_the_nearest_name(
    run: Run, filled: str, arguments: tuple[str, ...]
) -> None:
    assert "near it: one" in run(*arguments, "--store", filled, code=1).output


def test_a_sound_store_is_found_sound(run: Run, filled: str) -> None:
    text = run("verify", "--store", filled).output
    assert "one: sound" in text
    assert "two: sound" in text


@pytest.mark.parametrize(("mark", "count"), [("m30", 30), ("u1", 1), ("a1", None)])
def test_a_fork_ends_where_it_is_told(run: Run, filled: str, mark: str, count: int | None) -> None:
    run("fork", "one", "branch", "--at", mark, "--store", filled)
    forked = messages(run, "branch", filled)
    assert forked == messages(run, "one", filled)[: len(forked)]
    if count:
        assert len(forked) == count


def test_a_fork_at_no_place_is_an_error(run: Run, filled: str) -> None:
    assert "no m999" in run("fork", "one", "--at", "m999", "--store", filled, code=1).output
    assert "names no place" in run("fork", "one", "--at", "x1", "--store", filled, code=1).output
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

    async def resumed(address: str) -> str:
        manager = ContextManager(
            load_config({"token_counter": "heuristic", "max_tokens": 8_000}),
            session_id="two",
            store=open_store(address),
        )
        view = json.dumps(await manager.get_messages_for_request())
        await manager.close()
        return view

    assert asyncio.run(resumed(filled)) == asyncio.run(resumed(other))
    again = run("copy", filled, other).output
    assert "0 of 2" in again
    assert "left as it is" in again


def test_what_is_forgotten_is_nowhere_in_the_files(run: Run, filled: str, tmp_path: Path) -> None:
    assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    run("forget", "one", "--containing", "--yes", "--store", filled, stdin=f"{SECRET}\n")
    run("forget", "two", "m21", "--yes", "--store", filled)
    assert [m["content"] for m in messages(run, "one", filled)][20] == "(erased)"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    assert "sound" in run("verify", "one", "--store", filled).output


def test_forgetting_what_is_not_there_is_told(run: Run, filled: str) -> None:
    assert "not in one: m9999" in run("forget", "one", "m9999", "--yes", "--store", filled, code=1).output
    assert "is no mark" in run("forget", "one", "x", "--yes", "--store", filled, code=1).output
    run("forget", "one", "--yes", "--store", filled, code=2)


@pytest.mark.parametrize("what", [("m21",), ("--containing",)])
def test_forks_that_hold_what_is_forgotten_are_named_with_the_way_out(
    run: Run, filled: str, tmp_path: Path, what: tuple[str, ...]
) -> None:
    stdin = f"{SECRET}\n"
    run("delete", "two", "--yes", "--store", filled)
    run("fork", "one", "before", "--at", "m10", "--store", filled)
    run("fork", "one", "child", "--store", filled)
    run("fork", "child", "grandchild", "--at", "m40", "--store", filled)
    said = run("forget", "child", *what, "--yes", "--store", filled, stdin=stdin).output
    commands = {line.partition(" holds the same; to erase it there: ")[::2] for line in said.splitlines()[1:]}
    assert commands == {
        (name, f"`amplifier-context forget {name} {' '.join(what)}` with the same --store")
        for name in ("one", "grandchild")
    }
    for _, command in commands:
        run(*command.split("`")[1].split()[1:], "--yes", "--store", filled, stdin=stdin)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    again = run("forget", "one", "m21", "--yes", "--store", filled).output
    assert again == "one: 1 messages erased\n"  # what was erased before is nowhere else


def test_what_is_forgotten_is_forgotten_in_forks_too_when_asked(run: Run, filled: str, tmp_path: Path) -> None:
    async def say_it_again() -> None:
        store = open_store(filled)
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="child", store=store)
        await manager.add_message({"role": "user", "content": f"so I use {SECRET}"})
        await manager.close()

    run("delete", "two", "--yes", "--store", filled)
    run("fork", "one", "child", "--store", filled)
    asyncio.run(say_it_again())
    said = run("forget", "one", "--containing", "--forks", "--yes", "--store", filled, stdin=SECRET).output
    assert said == "child: 2 messages erased\none: 1 messages erased\n"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


def test_a_text_that_is_piped_in_is_read_without_a_word(filled: str) -> None:
    command = [sys.executable, "-c", "from amplifier_context_core.cli import main; main()", "forget", "one"]
    command += ["--containing", "--store", filled]

    def piped(*options: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*command, *options], input=f"{SECRET}\r\n", capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = piped()
    assert (code, out) == (2, "")
    assert "nothing can be asked: pass --yes" in err
    assert piped("--yes") == (0, "one: 1 messages erased\n", "")


def test_a_session_in_use_is_shown_but_not_deleted(run: Run, filled: str) -> None:
    store = open_store(filled)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(store.open("one"))
        assert len(messages(run, "one", filled)) == 121
        for command in (("delete", "one", "--yes"), ("forget", "one", "m2", "--yes"), ("repair", "one")):
            said = run(*command, "--store", filled, code=1).output
            assert re.fullmatch(r"Error: session 'one' is in use by pid .*; end that process, then try again\n", said)
        assert "pid" in run("sessions", "--store", filled).output
    finally:
        loop.run_until_complete(store.close())
        loop.close()


def test_a_damaged_file_is_found_and_mended(run: Run, tmp_path: Path) -> None:
    address = f"jsonl:{tmp_path}"
    asyncio.run(_filled(address, "one", 60, 4))
    file = tmp_path / "one" / "context-messages.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[10] = b"\x00" * (len(lines[10]) - 1) + b"\n"
    file.write_bytes(b"".join(lines) + b'{"role": "user", "con')
    assert "problems" in run("verify", "--store", address, code=1).output
    text = run("repair", "one", "--store", address).output
    assert "1 messages lost" in text
    assert "mended:" in text
    assert "one: sound" in run("verify", "--store", address).output
    assert len(messages(run, "one", address)) == 60


@pytest.mark.parametrize("address", ["nonsense", "ftp://x", "sqlite:/proc/none/x.db"])
def test_a_store_that_cannot_be_used_is_told_in_a_sentence(run: Run, address: str) -> None:
    done = run("sessions", "--store", address, code=1)
    assert done.output.startswith("Error: ")
    assert "Traceback" not in done.output


def test_a_text_is_forgotten_however_it_is_escaped(run: Run, address: str) -> None:
    secret = 'p"w\\x-sécret'
    arguments = json.dumps({"key": secret})

    async def fill() -> None:
        manager = ContextManager(
            load_config({"token_counter": "heuristic"}), session_id="one", store=open_store(address)
        )
        for message in (
            {"role": "user", "content": f"the key is {secret}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "use", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": json.dumps({"sent": arguments}, ensure_ascii=False)},
            {"role": "user", "content": f"\ud800 and again {secret}"},
            {"role": "user", "content": "nothing here"},
        ):
            await manager.add_message(message)
        await manager.close()

    asyncio.run(fill())
    assert (
        "4 messages erased"
        in run("forget", "one", "--containing", "--yes", "--store", address, stdin=f"{secret}\n").output
    )
    assert "sécret" not in run("show", "one", "--full", "--store", address).output


def test_a_copy_gives_no_seq_again_that_was_given(run: Run, address: str, tmp_path: Path) -> None:
    async def fill() -> None:
        store = open_store(address, archive=False)
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
    run("copy", address, other)
    assert asyncio.run(extent(address)) == asyncio.run(extent(other)) == (2, 4)
