"""`amplifier-context forget`, run as a user runs it: forks, spawned sessions, the whole store, a host's own files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli import host_files
from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.default_paths import sessions_folder
from amplifier_context_testing import coding_session
from tests.cli.kept import keep, opened
from tests.durable.hindrance import Hindrance
from tests.durable.host import Host
from tests.places import KEPT, Place, parameters

SECRET = "SECRET_hunter2"
PASSWORD = f"my password is {SECRET}"
Run = Callable[..., Result]
Message = dict[str, Any]


@pytest.fixture(params=parameters("jsonl", "postgresql", soak=KEPT))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where histories are kept: in a file and on a server, in a soak in each store but memory."""
    return Place(request.param, tmp_path, "flush")


@pytest.fixture
def run(place: Place) -> Run:
    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
        done = CliRunner().invoke(main, [arguments[0], "--store", place.url(), *arguments[1:]], input=stdin)
        assert done.exit_code == code, done.output
        return done

    return run


def manager_on(place: Place, name: str) -> ContextManager:
    config = load_config({"token_counter": "heuristic", "max_tokens": 6_000})
    return ContextManager(config, session_id=place.session_id(name), store=place.store())


async def talk(place: Place, name: str, *texts: str) -> list[Message]:
    """Say this in a session, and show it once; the history."""
    manager = manager_on(place, name)
    for number, text in enumerate(texts):
        await manager.add_message({"role": "assistant" if number % 2 else "user", "content": text})
        await asyncio.sleep(0.002)  # so that no two have the same time
    await manager.get_messages_for_request()
    history = await manager.get_messages()
    await manager.close()
    return history


async def hand_on(place: Place, name: str, history: list[Message]) -> None:
    """Begin a session with the history of another, as foundation spawns an agent."""
    child = manager_on(place, name)
    await child.set_messages(history)
    await child.add_message({"role": "user", "content": "your own task"})
    await child.get_messages_for_request()
    await child.close()


def contents(place: Place, name: str) -> list[str]:
    async def read() -> list[str]:
        store = place.store()
        entries = await store.read(place.session_id(name))
        await store.close()
        return [entry.message["content"] for entry in entries]

    return asyncio.run(read())


def test_after_forget_a_host_does_not_bring_the_text_back(place: Place, run: Run, home: Path) -> None:
    name = place.session_id("s")
    host = Host(home, name)

    async def first() -> None:
        manager = manager_on(place, "s")
        host.prompted(PASSWORD)
        await manager.add_message({"role": "user", "content": PASSWORD})
        await manager.add_message({"role": "assistant", "content": "thank you"})
        await host.save(manager)
        await host.save(manager)
        await manager.close()

    async def second() -> None:
        manager = manager_on(place, "s")
        await host.resume(manager, "Be brief.")
        await manager.add_message({"role": "user", "content": "go on"})
        assert SECRET not in json.dumps(await manager.get_messages_for_request())
        await manager.close()

    asyncio.run(first())
    output = run("forget", name, "--containing", "--yes", stdin=f"{SECRET}\n").output
    assert f"{name}: 1 message erased\n" in output
    asyncio.run(second())
    assert contents(place, "s")[-3:] == ["(erased)", "thank you", "go on"]
    named = sorted(line.split("/")[-1] for line in output.splitlines() if line.startswith("  "))
    assert named == ["events.jsonl", "repl_history", "transcript.jsonl", "transcript.jsonl.backup"]
    assert SECRET not in output


def test_what_a_store_cannot_erase_yet_is_reported_with_the_command_that_finishes_it(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hindrance, name = Hindrance(monkeypatch), place.session_id("s")
    asyncio.run(talk(place, "s", PASSWORD, "thank you"))
    with hindrance.on():
        output = run("forget", name, "--containing", "--yes", stdin=SECRET, code=1).output
    assert f"{name} m1`" in output.partition("To complete the erasure: `amplifier-context forget")[2]
    tries = hindrance.tries
    assert f"{name}: 1 message erased" in run("forget", name, "m1", "--yes").output
    assert hindrance.tries > tries or place.backend == "sqlite"  # that one had begun when the database was closed
    for path in place.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("first", [[], ["--no-trace"]])
def test_a_second_try_with_forks_erases_what_the_first_left_in_them(place: Place, run: Run, first: list[str]) -> None:
    parent, kid = place.session_id("zz-p"), place.session_id("zz-kid")
    asyncio.run(talk(place, "zz-p", PASSWORD, "thank you", "go on"))
    run("fork", parent, kid)
    assert f"{kid} contains the same" in run("forget", parent, "m1", "--yes", *first).output
    assert PASSWORD in contents(place, "zz-kid")
    output = run("forget", parent, "m1", "--forks", "--yes").output
    assert f"{kid}: 1 message erased" in output
    assert contents(place, "zz-kid") == ["(erased)", "thank you", "go on"]
    assert kid not in run("forget", parent, "m1", "--yes").output  # nothing is left there


@pytest.mark.parametrize("again", [False, True])
def test_a_spawned_session_that_was_handed_the_history_is_found(place: Place, run: Run, again: bool) -> None:
    parent, child = place.session_id("parent-x"), place.session_id("child-x")
    history = asyncio.run(talk(place, "parent-x", "hello", "welcome", PASSWORD, "thank you"))
    asyncio.run(hand_on(place, "child-x", history[1:]))
    asyncio.run(talk(place, "stranger", "hello", "welcome", PASSWORD))
    if again:
        assert f"{child} contains the same" in run("forget", parent, "m3", "--yes").output
    output = run("forget", parent, "m3", "--forks", "--yes").output
    assert f"{child}: 1 message erased" in output
    assert contents(place, "child-x") == ["welcome", "(erased)", "thank you", "your own task"]
    assert PASSWORD in contents(place, "stranger")  # the same words, and another message: for --containing


def test_a_message_of_a_whole_second_is_found_in_a_spawned_session(files: Place) -> None:
    async def spoken() -> list[Message]:
        manager = manager_on(files, "parent")
        for second, text in enumerate(("hello", PASSWORD)):
            stamp = {"timestamp": f"2026-01-01T00:00:0{second}.000+00:00"}
            await manager.add_message({"role": "user", "content": text, "metadata": stamp})
        history = await manager.get_messages()
        await manager.close()
        return history

    asyncio.run(hand_on(files, "child", asyncio.run(spoken())))
    assert "child: 1 message erased" in forget(files, "parent", "m2", "--forks", "--yes").output
    assert contents(files, "child") == ["hello", "(erased)", "your own task"]


# --- a whole store, and what is in the way; files are enough to show that --------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Place:
    """A store of files that holds three sessions; two of them say the secret."""
    place = Place("jsonl", tmp_path / "files")
    asyncio.run(talk(place, "one", PASSWORD, "thank you"))
    asyncio.run(talk(place, "two", "hello", "welcome"))
    asyncio.run(talk(place, "three", "hello", f"you said {SECRET}", "I did"))
    return place


def forget(place: Place, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["forget", "--store", place.url(), *arguments], input=stdin)


def test_forgetting_in_a_whole_store_lists_first_what_it_found(files: Place) -> None:
    done = forget(files, "--containing", "--yes", stdin=f"{SECRET}\n")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert sorted(lines[:2]) == ["one: m1", "three: m2"]
    assert sorted(lines[2:]) == ["one: 1 message erased", "three: 1 message erased"]
    assert SECRET not in "".join([*contents(files, "one"), *contents(files, "three")])
    assert contents(files, "two") == ["hello", "welcome"]
    nothing = forget(files, "--containing", "--yes", stdin=f"{SECRET}\n")
    assert (nothing.exit_code, "none of 3 sessions in" in nothing.output) == (1, True)


def test_a_whole_store_is_never_erased_from_unasked(files: Place) -> None:
    for arguments in (["--containing"], ["--forks", "--containing", "--yes"], ["--yes"]):
        done = forget(files, *arguments, stdin=SECRET)
        assert (done.exit_code, SECRET in done.output) == (2, False)
    assert PASSWORD in contents(files, "one")


def test_a_session_in_use_is_named_and_the_others_are_gone_through(files: Place) -> None:
    with opened(files.url(), "one"):
        done = forget(files, "--containing", "--yes", stdin=SECRET)
    assert done.exit_code == 1
    assert "one: session 'one' is in use by pid" in done.output
    assert "three: 1 message erased" in done.output
    assert PASSWORD in contents(files, "one")
    assert forget(files, "--containing", "--yes", stdin=SECRET).exit_code == 0


def test_a_text_that_only_a_short_form_holds_is_found_as_well(files: Place) -> None:
    async def register() -> None:
        manager = manager_on(files, "two")
        await manager.compact_summary("to_come", f"it used {SECRET}")
        await manager.close()

    asyncio.run(register())
    assert forget(files, "two", "--containing", "--yes", stdin=SECRET).exit_code == 0
    asyncio.run(register())
    done = forget(files, "--containing", "--yes", stdin=SECRET)
    assert "two: its checkpoint" in done.output
    for path in files.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name


def test_no_trace_leaves_no_hash(files: Place) -> None:
    forget(files, "one", "m1", "--yes")
    assert any(b"$scrypt$" in path.read_bytes() for path in files.folder.rglob("*") if path.is_file())
    forget(files, "one", "m1", "--no-trace", "--yes")
    assert not any(b"$scrypt$" in path.read_bytes() for path in files.folder.rglob("*") if path.is_file())


# --- files of the host -----------------------------------------------------------------------------------------------


def named(done: Result) -> list[str]:
    return [
        line.strip().split("/.amplifier/projects/")[1] for line in done.output.splitlines() if "/.amplifier/" in line
    ]


def test_files_of_the_host_are_found_by_looking_into_them(files: Place, home: Path) -> None:
    host, other = Host(home, "one"), Host(home, "one", project="x-0a1b2c3d")
    host.prompted(PASSWORD)
    other.transcript.write_text(json.dumps({"role": "user", "content": json.dumps({"note": PASSWORD})}))
    (host.folder / "plans").mkdir()
    (host.folder / "plans" / "notes.md").write_text(f"{'-' * 3_000_000}{SECRET}")
    (host.folder / "clean.md").write_text("nothing")
    Host(home, "another").prompted("elsewhere")
    (home / ".amplifier" / "projects" / "-tmp-x" / "sessions" / "another" / "its.md").write_text(PASSWORD)
    done = forget(files, "one", "m1", "--yes")
    assert named(done) == [
        "-tmp-x/repl_history",
        "-tmp-x/sessions/one/events.jsonl",
        "x-0a1b2c3d/sessions/one/transcript.jsonl",
    ]
    done = forget(files, "one", "--containing", "--yes", stdin=SECRET)
    assert "-tmp-x/sessions/one/plans/notes.md" in named(done)
    assert SECRET not in done.output


def test_links_out_of_the_session_and_odd_files_are_not_read(files: Place, home: Path, tmp_path: Path) -> None:
    host = Host(home, "one")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.md").write_text(PASSWORD)
    (host.folder / "link.md").symlink_to(outside / "private.md")
    (host.folder / "linked").symlink_to(outside)
    os.mkfifo(host.folder / "pipe")
    (host.project.parent / "linked-project").symlink_to(host.project)
    done = forget(files, "one", "m1", "--yes")
    assert done.exit_code == 0
    assert named(done) == []


def test_what_cannot_be_read_in_time_is_counted(files: Place, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(home, "one")
    for number in range(3):
        (host.folder / f"{number}.md").write_text(PASSWORD)
    monkeypatch.setattr(host_files, "MAX_FILES", 1)
    assert "2 files of the host could not be searched" in forget(files, "one", "m1", "--yes").output
    monkeypatch.setattr(host_files, "TIME_LIMIT", -1.0)
    done = forget(files, "one", "--containing", "--yes", stdin=SECRET)
    assert "3 files of the host could not be searched" in done.output


def test_a_short_message_is_not_looked_for_in_files(files: Place, home: Path) -> None:
    Host(home, "two").prompted("hello")
    assert named(forget(files, "two", "m1", "--yes")) == []


def test_a_prompt_of_several_lines_is_found_in_the_history_of_prompts(files: Place, home: Path) -> None:
    asyncio.run(talk(files, "four", f"first line\nthen {SECRET}\nlast"))
    Host(home, "four").prompted(f"first line\nthen {SECRET}\nlast")
    assert "-tmp-x/repl_history" in named(forget(files, "four", "m1", "--yes"))


def test_no_file_of_the_host_is_changed(files: Place, home: Path) -> None:
    Host(home, "one").prompted(PASSWORD)

    def state() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("*") if path.is_file()}

    before = state()
    forget(files, "one", "m1", "--yes")
    assert state() == before != {}


# -- what is kept ------------------------------------------------------------------------------------------------------


def explained(run: Run, name: str) -> dict[str, Any]:
    return dict(json.loads(run("explain", name, "--json").stdout))


@pytest.fixture
def long(place: Place) -> str:
    """A session that was compacted for a budget that is not the default one; its name."""

    async def fill() -> None:
        manager = manager_on(place, "long")
        for message in coding_session(120, 1):
            await manager.add_message(message)
        await manager.get_messages_for_request()
        await manager.close()

    asyncio.run(fill())
    return place.session_id("long")


@pytest.mark.parametrize("what", [["m9999"], ["--containing"]])
def test_forgetting_nothing_keeps_the_compacted_view(place: Place, run: Run, long: str, what: list[str]) -> None:
    before, view = explained(run, long), run("view", long, "--json").stdout
    assert before["compactions"] > 0
    output = run(
        "forget", long, *what, "--yes", stdin="no message has this" if "--containing" in what else None, code=1
    )
    assert f"{long}: 0 messages erased" in output.output
    assert (explained(run, long), run("view", long, "--json").stdout) == (before, view)


# -- the same words elsewhere ------------------------------------------------------------------------------------------

NOTED = f"Understood: {PASSWORD}, I noted it."


def commands(done: Result) -> list[str]:
    """What is in backquotes, without the option that names a store."""
    return [re.sub(r" --store \S+", "", one) for one in done.stdout.split("`")[1::2]]


def test_messages_with_the_same_words_are_named_with_the_command_that_erases_them(place: Place, run: Run) -> None:
    name = place.session_id("two")
    asyncio.run(talk(place, "two", PASSWORD, NOTED, "go on", "done"))
    done = run("forget", name, "m1", "--yes")
    assert done.stdout.count("m2 contains it as well: ") == 1
    assert commands(done) == [
        f"amplifier-context forget {name} m2",
        f"amplifier-context forget --containing {name}",
    ]
    assert SECRET not in done.output
    assert "file" not in done.stdout.replace(place.url(), "")
    assert commands(run("forget", name, "m2", "--yes")) == []
    assert contents(place, "two") == ["(erased)", "(erased)", "go on", "done"]


def test_the_store_in_the_folders_of_a_host_is_not_taken_for_a_file_of_the_host(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = sessions_folder().parent
    for url in (f"jsonl:{project / 'sessions'}", f"sqlite:{project / 'context.db'}", f"jsonl:{project / 'one.jsonl'}"):
        name = "one" if url.endswith(".jsonl") else "two"
        keep(url, name, [PASSWORD, {"role": "assistant", "content": NOTED}])
        Host(home, name, project=project.name).prompted(PASSWORD)
        done = CliRunner().invoke(main, ["forget", name, "m1", "--yes", "--store", url])
        assert done.exit_code == 0, done.output
        assert "m2 contains it as well" in done.output
        shown = done.stdout.partition("These files of the host")[2]
        assert sorted(line.split("/")[-1] for line in shown.splitlines()[1:]) == ["events.jsonl", "repl_history"]
        shutil.rmtree(project)


COPIES = {
    "jsonl": ["sessions/one/context-messages.jsonl.bak", "sessions/one/context-messages.old", "one.jsonl~"],
    "sqlite": ["context.db.bak", "context.db-2025", "context.db-wal.bak"],
}


@pytest.mark.parametrize("scheme", COPIES)
def test_a_copy_of_a_file_of_the_store_is_named(home: Path, scheme: str) -> None:
    project = home / ".amplifier" / "projects" / "-tmp-x"
    url = f"{scheme}:{project / ('sessions' if scheme == 'jsonl' else 'context.db')}"
    keep(url, "one", [PASSWORD])
    (project / "sessions" / "one").mkdir(parents=True, exist_ok=True)
    files = {"jsonl": project / "sessions" / "one" / "context-messages.jsonl", "sqlite": project / "context.db"}
    assert SECRET.encode() in files[scheme].read_bytes()
    for copy in COPIES[scheme]:
        shutil.copy(files[scheme], project / copy)
    done = CliRunner().invoke(main, ["forget", "one", "m1", "--yes", "--store", url])
    assert done.exit_code == 0, done.output
    for copy in COPIES[scheme]:
        assert str(project / copy) in done.output
    assert SECRET.encode() not in files[scheme].read_bytes()


def test_a_copy_of_the_session_in_another_store_is_named_with_its_command(home: Path, files: Place) -> None:
    project = home / ".amplifier" / "projects" / "-tmp-x"
    for url in (f"jsonl:{project / 'sessions'}", f"sqlite:{project / 'context.db'}"):
        done = CliRunner().invoke(main, ["copy", files.url(), url, "--session", "one"])
        assert done.exit_code == 0, done.output
    former = project / "sessions" / "one" / "former" / "context-messages.archive.jsonl"
    former.parent.mkdir()
    former.write_text(PASSWORD)
    Host(home, "one")
    done = forget(files, "one", "m1", "--yes")
    start = "Another store contains it as well; to erase it there: `amplifier-context forget --containing --store "
    assert sorted(line for line in done.output.splitlines() if line.startswith("Another store")) == [
        f"{start}jsonl:{project / 'sessions'} one`",
        f"{start}sqlite:{project / 'context.db'}`",
    ]
    assert SECRET not in done.output
    assert "These files" not in done.output


def test_many_messages_with_the_same_words_take_one_line(files: Place) -> None:
    asyncio.run(talk(files, "many", *[PASSWORD] * 40))
    done = forget(files, "many", "m1", "--yes")
    assert "39 messages from m2 to m40 contain it as well: `amplifier-context forget --containing" in done.output
    assert forget(files, "many", "--containing", "--yes", stdin=SECRET).output.endswith("many: 39 messages erased\n")
