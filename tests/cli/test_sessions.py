"""`sessions` and `show` list what is kept, and fit the terminal."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from amplifier_context_cli.formatting import display_width
from amplifier_context_core.compat import StoredContext
from amplifier_context_core.stores import open_store
from tests.cli.kept import SECRET, Run, fill, keep


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
    for name in ("short", long, "日本語のセッション", "-with 'odd' \"name\""):
        keep(url, name, [f"First \x1b[2J 日本 of {name[:9]}: " + "words " * 60])
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("sessions", "--store", url).output.splitlines()
    assert [line for line in lines if display_width(line) > width] == [long]
    for name in ("short", "日本語のセッション", shlex.quote("-with 'odd' \"name\"")):
        assert any(name in line for line in lines)
    assert sum("First � 日本 of " in line or "First �[2J 日本 of " in line for line in lines) == 4
    assert all(re.search(r" \d\d\d\d-\d\d-\d\d \d\d:\d\d [+-]\d\d\d\d$", line) for line in lines if " kB  " in line)


def test_a_list_of_sessions_says_what_each_is_a_fork_of(run: Run, filled: str) -> None:
    wishes = [f"another wish {number}" for number in range(5)]
    run("fork", "one", "child", "--store", filled)
    keep(filled, "child", wishes)
    run("fork", "child", "grand child", "--store", filled)
    keep(filled, "grand child", wishes)
    rows = [json.loads(line) for line in run("sessions", "--store", filled, "--json").output.splitlines()]
    parents = {row["session_id"]: row["fork_of"] for row in rows}
    assert parents == {"one": "", "two": "", "child": "one", "grand child": "child"}
    assert len({row["first_prompt"] for row in rows if row["session_id"] != "two"}) == 1
    text = run("sessions", "--store", filled).output
    assert re.search(r"^'grand child' .*\n.*\n    fork of child$", text, re.MULTILINE)


def test_of_many_sessions_the_newest_are_looked_into(run: Run, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amplifier_context_cli.sessions.DETAILED", 2)
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
    for command in ("sessions", "verify", "repair"):
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
        output = run(*arguments, code=code).output
        assert re.search(r"in jsonl:~/\.amplifier/projects/project-[0-9a-f]{8}/sessions", output)
        assert "change to another folder, or name a store with --store" in output
    assert not (tmp_path / "home").exists()


def test_a_url_can_name_the_project_as_amplifier_does(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    asyncio.run(fill(f"jsonl:{tmp_path}/kept/{str(work).replace('/', '-')}", "here", 4, 1))
    assert "here" in run("sessions", "--store", f"jsonl:{tmp_path}/kept/{{project}}").output


def test_an_id_is_printed_as_it_must_be_typed(run: Run, url: str) -> None:
    odd = '-it\'s "odd" $HOME'
    keep(url, odd, [f"wish {number} {SECRET}" for number in range(3)])
    at = ("--store", url)
    output = run("fork", *at, "--", odd).output
    made, _, of = output.partition(": 3 messages of ")
    assert shlex.split(of) == [odd]
    (fork,) = shlex.split(made)
    assert run("show", *at, "--", fork).output.count("\n") == 3
    output = run("forget", "--yes", *at, "--", odd, "m1").output
    assert "1 message erased" in output
    (command,) = re.findall("`(.*)`", output)
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
    text = "several words that are used again and again " * 9
    keep(filled, "words", [text])
    (line,) = run("show", "words", "--store", filled).output.splitlines()
    assert width - 8 < display_width(line) <= width
    shown = line.removesuffix("…").split("  ")[-1].strip()
    assert text.startswith(f"{shown} ")


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
    rows = [
        json.loads(line) for line in run("show", "one", "--store", filled, "--last", "2", "--json").output.splitlines()
    ]
    assert [row["mark"] for row in rows] == ["m120", "m121"]


MORE = {
    "delete": ["--yes"],
    "undo": ["--yes"],
    "forget": ["m1", "--yes"],
    "report": ["-o", "page.html"],
    "pin": ["m1"],
    "unpin": ["m1"],
}
PLAIN = ("show", "view", "context", "explain", "fork", "repair", "compact", "pins")


@pytest.mark.parametrize("command", [*PLAIN, *MORE])
def test_a_missing_session_is_reported_with_the_most_similar_id(
    run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output = run(command, "ones", *MORE.get(command, ()), "--store", filled, code=1).output
    assert "there is no session 'ones'" in output
    assert "similar: one" in output
    assert not (tmp_path / "page.html").exists()
