"""The commands that look after kept sessions, run as a user runs them, on real stores."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.cli.app import main
from amplifier_context_core.cli.formatting import display_width
from amplifier_context_core.compat import StoredContext
from amplifier_context_core.stores import open_store
from amplifier_context_testing import coding_session
from amplifier_context_testing.contract.samples import entries

SECRET = "sk-live-4242-topsecret"

Run = Callable[..., Result]


@pytest.fixture(params=["jsonl", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / ('sessions' if request.param == 'jsonl' else 'sessions.db')}"


@pytest.fixture
def run() -> Run:
    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
        done = CliRunner().invoke(main, list(arguments), input=stdin)
        assert done.exit_code == code, done.output
        return done

    return run


async def _filled(url: str, name: str, messages: int, seed: int) -> None:
    store = open_store(url, durability="flush")
    manager = ContextManager(
        load_config({"token_counter": "heuristic", "max_tokens": 8_000}), session_id=name, store=store
    )
    for number, message in enumerate(coding_session(messages, seed)):
        if number == 20:
            await manager.add_message({"role": "user", "content": f"the key is {SECRET}, \x1b[2J keep it"})
        await manager.add_message(message)
    await manager.get_messages_for_request()
    await manager.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A store with two sessions, by its scheme: made once, for tests to copy."""

    @cache
    def made(scheme: str) -> Path:
        kept = tmp_path_factory.mktemp(scheme) / "sessions"
        for name, messages, seed in (("one", 120, 1), ("two", 40, 2)):
            asyncio.run(_filled(f"{scheme}:{kept}", name, messages, seed))
        return kept

    return made


@pytest.fixture
def filled(url: str, template: Callable[[str], Path]) -> str:
    scheme, _, path = url.partition(":")
    kept = template(scheme)
    if kept.is_dir():
        shutil.copytree(kept, path)
    else:
        shutil.copy2(kept, path)
    return url


def messages(run: Run, name: str, url: str, *options: str) -> list[dict[str, object]]:
    shown = run("show", name, "--store", url, "--json", *options).output
    return [json.loads(line) for line in shown.splitlines()]


def test_sessions_are_listed_with_their_sizes(run: Run, filled: str) -> None:
    text = run("sessions", "--store", filled).output
    assert re.search(r"^one\s+121", text, re.MULTILINE)
    assert re.search(r"^two\s+41", text, re.MULTILINE)
    listed = [json.loads(line) for line in run("sessions", "--store", filled, "--json").output.splitlines()]
    assert {row["session_id"]: row["length"] for row in listed} == {"one": 121, "two": 41}


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_list_of_sessions_fits_the_screen_and_cuts_no_id(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    long = "a-session-with-a-name-that-is-longer-than-any-screen-" * 3

    async def fill() -> None:
        for name in ("short", long, "日本語のセッション", "-with 'odd' \"name\""):
            store = open_store(url, durability="flush")
            manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=name, store=store)
            await manager.add_message(
                {"role": "user", "content": f"First \x1b[2J 日本 of {name[:9]}: " + "words " * 60}
            )
            await manager.close()

    asyncio.run(fill())
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("sessions", "--store", url).output.splitlines()
    assert [line for line in lines if display_width(line) > width] == [long]
    for name in ("short", "日本語のセッション", shlex.quote("-with 'odd' \"name\"")):
        assert any(name in line for line in lines)
    assert sum("First � 日本 of " in line or "First �[2J 日本 of " in line for line in lines) == 4
    assert all(re.search(r" \d\d\d\d-\d\d-\d\d \d\d:\d\d [+-]\d\d\d\d$", line) for line in lines if " kB  " in line)


def test_a_list_of_sessions_says_what_each_is_a_fork_of(run: Run, filled: str) -> None:
    async def answer(name: str) -> None:
        store = open_store(filled, durability="flush")
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=name, store=store)
        for number in range(5):
            await manager.add_message({"role": "user", "content": f"another wish {number}"})
        await manager.close()

    run("fork", "one", "child", "--store", filled)
    asyncio.run(answer("child"))
    run("fork", "child", "grand child", "--store", filled)
    asyncio.run(answer("grand child"))
    rows = [json.loads(line) for line in run("sessions", "--store", filled, "--json").output.splitlines()]
    parents = {row["session_id"]: row["fork_of"] for row in rows}
    assert parents == {"one": "", "two": "", "child": "one", "grand child": "child"}
    assert len({row["first_prompt"] for row in rows if row["session_id"] != "two"}) == 1
    text = run("sessions", "--store", filled).output
    assert re.search(r"^'grand child' .*\n.*\n    fork of child$", text, re.MULTILINE)


def test_of_many_sessions_the_newest_are_looked_into(run: Run, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_context_core.cli.sessions.DETAILED", 2)
    run("fork", "one", "three", "--store", filled)
    run("fork", "one", "four", "--store", filled)
    done = run("sessions", "--store", filled)
    assert done.stdout.count("fork of one") == 2
    assert len(done.stdout.splitlines()) == 1 + 2 * 3 + 2
    assert done.stderr == "first prompts and forks are shown for the newest 2 only\n"


def test_no_sessions_is_no_error_and_says_where_it_looked(
    run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        run("delete", name, "--yes", "--store", filled)
    for command in ("sessions", "verify"):
        assert f"no sessions in {filled}" in run(command, "--store", filled).output
    assert (
        f"there is no session 'one' in {filled}, which holds none"
        in run("show", "one", "--store", filled, code=1).output
    )
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for arguments, code in ((["sessions"], 0), (["verify"], 0), (["show", "one"], 1)):
        said = run(*arguments, code=code).output
        assert re.search(r"in jsonl:~/\.amplifier/projects/project-[0-9a-f]{8}/sessions", said)
        assert "change to another folder, or name a store with --store" in said
    assert not (tmp_path / "home").exists()


def test_a_url_can_name_the_project_as_amplifier_does(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    asyncio.run(_filled(f"jsonl:{tmp_path}/kept/{str(work).replace('/', '-')}", "here", 4, 1))
    assert "here" in run("sessions", "--store", f"jsonl:{tmp_path}/kept/{{project}}").output


def test_a_search_without_a_match_is_reported(run: Run, filled: str) -> None:
    at = ("--store", filled)
    assert run("show", "one", "--from", "m9999", *at).output == (
        f"one has no message from m9999 on in {filled}; its newest is m121\n"
    )
    assert run("show", "one", "--archived", *at).output == f"one has no archived messages in {filled}\n"
    for name in ("one", "two"):
        run("delete", name, "--yes", *at)
    assert f"0 of 0 sessions copied from {filled} to {filled}2" in run("copy", filled, f"{filled}2").output


def test_unreadable_messages_are_reported(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    asyncio.run(_filled(url, "one", 60, 4))
    (tmp_path / "one" / "context-messages.jsonl").write_bytes(b"")
    damage = f"`amplifier-context verify --store {url} one`"
    said = run("show", "one", "--store", url, code=1).output
    assert said == f"Error: one in {url} is damaged, and no message can be read: {damage}\n"
    assert "one: 2 problems\n" in run("verify", "one", "--store", url, code=1).output


def test_an_id_is_printed_as_it_must_be_typed(run: Run, url: str) -> None:
    odd = '-it\'s "odd" $HOME'

    async def fill() -> None:
        store = open_store(url)
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=odd, store=store)
        for number in range(3):
            await manager.add_message({"role": "user", "content": f"wish {number} {SECRET}"})
        await manager.close()

    asyncio.run(fill())
    at = ("--store", url)
    said = run("fork", *at, "--", odd).output
    made, _, of = said.partition(": 3 messages of ")
    assert shlex.split(of) == [odd]
    (fork,) = shlex.split(made)
    assert run("show", *at, "--", fork).output.count("\n") == 3
    said = run("forget", "--yes", *at, "--", odd, "m1").output
    assert "1 message erased" in said
    (command,) = re.findall("`(.*)`", said)
    assert shlex.split(command) == ["amplifier-context", "forget", "--store", url, "--", fork, "m1"]
    run(*shlex.split(command)[1:2], "--yes", *shlex.split(command)[2:])
    assert SECRET not in "".join(
        run("show", *at, "--last", "3", "--", name).output.splitlines()[0] for name in (odd, fork)
    )
    assert f"similar: {shlex.quote(odd)}" in run("show", *at, "--", odd[:-1], code=1).output


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_shown_message_is_cut_between_words_to_the_screen(
    run: Run, filled: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("show", "one", "--store", filled).output.splitlines()
    assert len(lines) == 121
    assert max(map(display_width, lines)) <= width
    text = "several words that are said again and again " * 9

    async def say() -> None:
        manager = ContextManager(load_config({}), session_id="words", store=open_store(filled))
        await manager.add_message({"role": "user", "content": text})
        await manager.close()

    asyncio.run(say())
    (line,) = run("show", "words", "--store", filled).output.splitlines()
    assert width - 8 < display_width(line) <= width
    shown = line.removesuffix("…").split("  ")[-1].strip()
    assert text.startswith(f"{shown} ")


def test_copied_sessions_are_listed_in_the_same_order(run: Run, url: str, tmp_path: Path) -> None:
    names = ["b", "d", "a", "c"]

    async def fill() -> None:
        for name in names:
            store = open_store(url)
            manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=name, store=store)
            await manager.add_message({"role": "user", "content": f"wish {name}"})
            await manager.close()
            await asyncio.sleep(0.02)

    def listed(where: str) -> list[str]:
        rows = run("sessions", "--store", where, "--json").output.splitlines()
        return [json.loads(row)["session_id"] for row in rows]

    asyncio.run(fill())
    assert listed(url) == names[::-1]
    for number, other in enumerate((f"jsonl:{tmp_path / 'j'}", f"sqlite:{tmp_path / 's.db'}")):
        run("copy", url, other)
        assert listed(other) == names[::-1], number


def test_verify_names_the_command_that_repairs(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'with a blank'}"
    for name in ("one", "two too"):
        asyncio.run(_filled(url, name, 30, 4))
        file = tmp_path / "with a blank" / name / "context-messages.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        lines[10] = b"\x00" * (len(lines[10]) - 1) + b"\n"
        file.write_bytes(b"".join(lines))
    said = run("verify", "--store", url, code=1).output
    assert re.search(r"^one: (1 problem|\d+ problems)$", said, re.MULTILINE)
    commands = re.findall("`(.*)` repairs what can be repaired", said)
    assert [shlex.split(command)[-1] for command in commands] == ["two too", "one"]
    for command in commands:
        run(*shlex.split(command)[1:])
    run("verify", "--store", url)


def test_the_name_of_a_fork_is_optional_in_the_help(run: Run) -> None:
    assert "SESSION [NEW]" in run("fork", "--help").output


@pytest.mark.parametrize(
    "arguments",
    [("sessions",), ("show", "one"), ("verify",), ("repair", "one"), ("fork", "one"), ("delete", "one", "--yes")],
)
def test_a_mistyped_url_is_reported_and_nothing_is_created_there(
    run: Run, url: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    said = run(*arguments, "--store", url, code=1).output
    assert re.fullmatch(r"Error: there is no (folder|database) \S+; check the URL\n", said)
    assert list(tmp_path.iterdir()) == []


def test_copying_from_nowhere_is_refused(run: Run, url: str, tmp_path: Path) -> None:
    assert "Error: there is no " in run("copy", url, f"sqlite:{tmp_path / 'new.db'}", code=1).output
    assert list(tmp_path.iterdir()) == []


def test_copying_into_memory_is_refused(run: Run, filled: str) -> None:
    for places in ((filled, "memory:"), ("memory:", filled)):
        assert "name a persistent store, such as sqlite:FILE" in run("copy", *places, code=1).output


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
    assert run("show", "empty", "--store", filled).output == f"empty has no messages in {filled}\n"
    assert "empty: 0 messages, sound" in run("repair", "empty", "--store", filled).output
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
def test_a_missing_session_is_reported_with_the_most_similar_id(
    run: Run, filled: str, arguments: tuple[str, ...]
) -> None:
    assert "similar: one" in run(*arguments, "--store", filled, code=1).output


def test_a_sound_store_is_found_sound(run: Run, filled: str) -> None:
    text = run("verify", "--store", filled).output
    assert "one: sound" in text
    assert "two: sound" in text


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


def test_what_is_forgotten_is_nowhere_in_the_files(run: Run, filled: str, tmp_path: Path) -> None:
    assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    run("forget", "one", "--containing", "--yes", "--store", filled, stdin=f"{SECRET}\n")
    run("forget", "two", "m21", "--yes", "--store", filled)
    assert [m["content"] for m in messages(run, "one", filled)][20] == "(erased)"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    assert "sound" in run("verify", "one", "--store", filled).output


def test_forgetting_a_missing_message_is_reported(run: Run, filled: str) -> None:
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
    commands = dict(line.split(" contains the same; to erase it there: ") for line in said.splitlines()[1:])
    assert set(commands) == {"one", "grandchild"}
    for command in commands.values():
        run(*shlex.split(command.strip("`"))[1:], "--yes", stdin=stdin)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    again = run("forget", "one", "m21", "--yes", "--store", filled).output
    assert again == "one: 1 message erased\n"  # what was erased before is nowhere else


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
    assert sorted(said.splitlines()) == ["child: 2 messages erased", "one: 1 message erased"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
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
    assert "the command cannot ask for confirmation: pass --yes" in err
    assert piped("--yes") == (0, "one: 1 message erased\n", "")


def test_a_session_in_use_is_shown_but_not_deleted(run: Run, filled: str) -> None:
    store = open_store(filled)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(store.open("one"))
        assert len(messages(run, "one", filled)) == 121
        for command in (("delete", "one", "--yes"), ("forget", "one", "m2", "--yes"), ("repair", "one")):
            said = run(*command, "--store", filled, code=1).output
            assert re.fullmatch(
                r"Error: session 'one' is in use by pid .*; end that process and repeat the command\n", said
            )
        assert "pid" in run("sessions", "--store", filled).output
    finally:
        loop.run_until_complete(store.close())
        loop.close()


def test_a_damaged_file_is_found_and_repaired(run: Run, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    asyncio.run(_filled(url, "one", 60, 4))
    file = tmp_path / "one" / "context-messages.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[10] = b"\x00" * (len(lines[10]) - 1) + b"\n"
    file.write_bytes(b"".join(lines) + b'{"role": "user", "con')
    assert "problems" in run("verify", "--store", url, code=1).output
    text = run("repair", "one", "--store", url).output
    assert "1 message lost" in text
    assert "repaired:" in text
    assert "one: sound" in run("verify", "--store", url).output
    assert len(messages(run, "one", url)) == 60


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "sqlite:/proc/none/x.db"])
def test_an_unusable_store_is_reported_in_a_sentence(run: Run, url: str) -> None:
    done = run("sessions", "--store", url, code=1)
    assert done.output.startswith("Error: ")
    assert "Traceback" not in done.output


def test_a_text_is_forgotten_however_it_is_escaped(run: Run, url: str) -> None:
    secret = 'p"w\\x-sécret'
    arguments = json.dumps({"key": secret})

    async def fill() -> None:
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id="one", store=open_store(url))
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
        "4 messages erased" in run("forget", "one", "--containing", "--yes", "--store", url, stdin=f"{secret}\n").output
    )
    assert "sécret" not in run("show", "one", "--full", "--store", url).output


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


@pytest.mark.parametrize("index", ["sqlite_autoindex_sessions_1", "entries_by_seq", "archive_by_session"])
def test_repair_repairs_the_index_that_verify_names(run: Run, tmp_path: Path, index: str) -> None:
    path = tmp_path / "sessions.db"
    url = f"sqlite:{path}"
    asyncio.run(_filled(url, "one", 40, 1))
    asyncio.run(_edited(url))
    db = sqlite3.connect(path)
    (at,) = db.execute("SELECT (pageno - 1) * 4096 FROM dbstat WHERE name = ?", (index,)).fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    data[at + 3 : at + 7] = (0).to_bytes(2, "big") + (4096).to_bytes(2, "big")  # no cells
    path.write_bytes(data)
    for name in ((), ("two",)):
        found = run("verify", *name, "--store", url, code=1).output
        assert re.search(f"{index}|is damaged; nothing was changed", found)
        assert "amplifier-context repair" in found
        assert path.read_bytes() == data
    said = run("repair", "two", "--store", url).output
    assert "the database was damaged and has been rewritten" in said
    assert "two: 8 messages, sound" in said
    assert "two: sound" in run("verify", "two", "--store", url).output
    assert len(messages(run, "two", url, "--archived")) == 4


async def _edited(url: str) -> None:
    store = open_store(url)
    await store.append("two", entries(1, 10, session_id="two"))
    await store.replace("two", 6, entries(11, 12, session_id="two"))
    await store.close()
