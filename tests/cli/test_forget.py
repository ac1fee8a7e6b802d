"""`amplifier-context forget`: forks, spawned sessions, the whole store, a host's own files, and every byte of files."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from amplifier_context_cli import host_files
from amplifier_context_core import ContextManager
from amplifier_context_core.default_paths import sessions_folder
from tests.cli.kept import SECRET as KEY
from tests.cli.kept import Message, in_session, is_in_files, keep, messages, opened, rows, run
from tests.durable.hindrance import Hindrance
from tests.durable.host import Host
from tests.messages import user
from tests.places import KEPT, Place, parameters

SECRET = "SECRET_hunter2"
PASSWORD = f"my password is {SECRET}"
NOTED = f"Understood: {PASSWORD}, I noted it."


@pytest.fixture(params=parameters("jsonl", "postgresql", soak=KEPT))
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where histories are kept: in a file and on a server, in a soak in each store but memory."""
    place = Place(request.param, tmp_path, "flush")
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", place.url())
    return place


async def say(manager: ContextManager, *texts: str) -> list[Message]:
    """Say this in turn, and show it once; the history."""
    for number, text in enumerate(texts):
        await manager.add_message({"role": "assistant" if number % 2 else "user", "content": text})
        await asyncio.sleep(0.002)  # so that no two have the same time
    await manager.get_messages_for_request()
    return await manager.get_messages()


def talk(place: Place, name: str, *texts: str) -> list[Message]:
    return in_session(place.url(), lambda manager: say(manager, *texts), place.session_id(name))


def contents(name: str) -> list[object]:
    return [message["content"] for message in messages(name)]


def test_what_a_store_cannot_erase_yet_is_named_with_its_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    hindrance, name = Hindrance(monkeypatch), place.session_id("s")
    talk(place, "s", PASSWORD, "thank you")
    with hindrance.on():
        shown = run("forget", name, "--containing", "--yes", stdin=SECRET, code=1).output
    assert f"{name} m1`" in shown.partition("To complete the erasure: `amplifier-context forget")[2]
    tries = hindrance.tries
    assert f"{name}: 1 message erased" in run("forget", name, "m1", "--yes").output
    assert hindrance.tries > tries or place.backend == "sqlite"  # that one had begun when the database was closed
    assert not is_in_files(SECRET, place.folder)


@pytest.mark.parametrize("first", [[], ["--no-trace"]])
def test_a_second_try_with_forks_erases_what_the_first_left_in_them(place: Place, first: list[str]) -> None:
    parent, kid = place.session_id("zz-p"), place.session_id("zz-kid")
    talk(place, "zz-p", PASSWORD, "thank you", "go on")
    run("fork", parent, kid)
    assert f"{kid} contains the same" in run("forget", parent, "m1", "--yes", *first).output
    assert PASSWORD in contents(kid)
    assert f"{kid}: 1 message erased" in run("forget", parent, "m1", "--forks", "--yes").output
    assert contents(kid) == ["(erased)", "thank you", "go on"]
    assert kid not in run("forget", parent, "m1", "--yes").output  # nothing is left there


def test_a_spawned_session_that_was_handed_the_history_is_found(place: Place) -> None:
    parent, child = place.session_id("parent-x"), place.session_id("child-x")
    history = talk(place, "parent-x", "hello", "welcome", PASSWORD, "thank you")

    async def begin(spawned: ContextManager) -> None:
        await spawned.set_messages(history[1:])
        await say(spawned, "your own task")

    in_session(place.url(), begin, child)  # as foundation spawns an agent
    talk(place, "stranger", "hello", "welcome", PASSWORD)
    assert f"{child} contains the same" in run("forget", parent, "m3", "--yes").output
    assert f"{child}: 1 message erased" in run("forget", parent, "m3", "--forks", "--yes").output
    assert contents(child) == ["welcome", "(erased)", "thank you", "your own task"]
    assert PASSWORD in contents(place.session_id("stranger"))  # the same words, another message: for --containing


@pytest.mark.parametrize("what", ["m9999", "--containing"])
def test_forgetting_nothing_keeps_the_compacted_view(filled: str, what: str) -> None:
    before = rows("explain", "one"), rows("view", "one")
    assert "one: 0 messages erased" in run("forget", "one", what, "--yes", stdin="nothing has this", code=1).output
    assert (rows("explain", "one"), rows("view", "one")) == before


def test_messages_with_the_same_words_are_named_with_the_command_that_erases_them(place: Place) -> None:
    name = place.session_id("two")
    talk(place, "two", PASSWORD, NOTED, "go on", "done")
    done = run("forget", name, "m1", "--yes")
    assert done.stdout.count("m2 contains it as well: ") == 1
    assert f"{name} m2`" in done.stdout
    assert "`amplifier-context forget --containing" in done.stdout
    assert SECRET not in done.output
    assert "`" not in run("forget", name, "m2", "--yes").stdout
    assert contents(name) == ["(erased)", "(erased)", "go on", "done"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A store of files that holds three sessions; two of them say the secret."""
    place = Place("jsonl", tmp_path / "files")
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", place.url())
    talk(place, "one", PASSWORD, "thank you")
    talk(place, "two", "hello", "welcome")
    talk(place, "three", "hello", f"you said {SECRET}", "I did")
    return place


def test_forgetting_in_a_whole_store_is_asked_lists_what_it_found_and_names_a_session_in_use(files: Place) -> None:
    for arguments in (["--containing"], ["--forks", "--containing", "--yes"], ["--yes"]):
        assert SECRET not in run("forget", *arguments, stdin=SECRET, code=2).output
    with opened(files.url(), "one"):
        shown = run("forget", "--containing", "--yes", stdin=f"{SECRET}\n", code=1).output
    assert "one: session 'one' is in use by pid" in shown
    assert "three: 1 message erased" in shown
    assert PASSWORD in contents("one")
    lines = run("forget", "--containing", "--yes", stdin=SECRET).output.splitlines()
    assert lines == ["one: m1", "one: 1 message erased"]
    assert SECRET not in str([*contents("one"), *contents("three")])
    assert contents("two") == ["hello", "welcome"]
    assert "none of 3 sessions in" in run("forget", "--containing", "--yes", stdin=f"{SECRET}\n", code=1).output


def test_a_text_that_only_a_short_form_holds_is_found_as_well(files: Place) -> None:
    for names in (["two"], []):
        in_session(files.url(), lambda one: one.compact_summary("to_come", f"it used {SECRET}"), "two")
        shown = run("forget", *names, "--containing", "--yes", stdin=SECRET).output
    assert "two: its checkpoint" in shown
    assert not is_in_files(SECRET, files.folder)


def test_no_trace_leaves_no_hash(files: Place) -> None:
    run("forget", "one", "m1", "--yes")
    assert is_in_files("$scrypt$", files.folder)
    run("forget", "one", "m1", "--no-trace", "--yes")
    assert not is_in_files("$scrypt$", files.folder)


def named(done: Result) -> list[str]:
    lines = [line.strip() for line in done.output.splitlines() if "/.amplifier/" in line]
    return [line.split("/.amplifier/projects/")[1] for line in lines]


def test_files_of_the_host_are_found_by_looking_into_them_and_not_changed(files: Place, home: Path) -> None:
    host, other = Host(home, "one"), Host(home, "one", project="x-0a1b2c3d")
    host.prompted(f"first line\n{PASSWORD}\nlast")
    other.transcript.write_text(json.dumps({"role": "user", "content": json.dumps({"note": PASSWORD})}))
    (host.folder / "plans").mkdir()
    (host.folder / "plans" / "notes.md").write_text(f"{'-' * 3_000_000}{SECRET}")
    (host.folder / "clean.md").write_text("nothing")
    Host(home, "another").prompted("elsewhere")
    (host.project / "sessions" / "another" / "its.md").write_text(PASSWORD)
    Host(home, "two").prompted("hello")

    def state() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("*") if path.is_file()}

    before = state()
    assert named(run("forget", "one", "m1", "--yes")) == [
        "-tmp-x/repl_history",
        "-tmp-x/sessions/one/events.jsonl",
        "x-0a1b2c3d/sessions/one/transcript.jsonl",
    ]
    done = run("forget", "one", "--containing", "--yes", stdin=SECRET, code=1)
    assert "-tmp-x/sessions/one/plans/notes.md" in named(done)
    assert SECRET not in done.output
    assert named(run("forget", "two", "m1", "--yes")) == [], "a short message is not looked for"
    assert state() == before


def test_a_message_of_several_lines_of_a_whole_second_is_found_in_prompts_and_in_a_child(
    files: Place, home: Path
) -> None:
    prompt = f"first line\nthen {SECRET}\nlast"
    said = [user(prompt, metadata={"timestamp": "2026-01-01T00:00:01.000+00:00"})]
    keep(files.url(), "parent", said)
    Host(home, "parent").prompted(prompt)
    in_session(files.url(), lambda child: child.set_messages(said), "child")
    done = run("forget", "parent", "m1", "--forks", "--yes")
    assert "child: 1 message erased" in done.output
    assert "-tmp-x/repl_history" in named(done)
    assert contents("child") == ["(erased)"]


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
    file = project / ("sessions/one/context-messages.jsonl" if scheme == "jsonl" else "context.db")
    for copy in COPIES[scheme]:
        shutil.copy(file, project / copy)
    shown = run("forget", "one", "m1", "--yes", at=url).output
    assert all(str(project / copy) in shown for copy in COPIES[scheme])
    assert SECRET.encode() not in file.read_bytes()


def test_a_store_in_the_folders_of_a_host_is_not_taken_for_a_file_of_the_host(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = sessions_folder().parent
    for url in (f"jsonl:{project / 'sessions'}", f"sqlite:{project / 'context.db'}", f"jsonl:{project / 'one.jsonl'}"):
        name = "one" if url.endswith(".jsonl") else "two"
        keep(url, name, [PASSWORD, NOTED])
        Host(home, name, project=project.name).prompted(PASSWORD)
        shown = run("forget", name, "m1", "--yes", at=url).stdout.partition("These files of the host")[2]
        assert sorted(line.split("/")[-1] for line in shown.splitlines()[1:]) == ["events.jsonl", "repl_history"]
        shutil.rmtree(project)


def test_links_out_of_the_session_and_odd_files_are_not_read(files: Place, home: Path, tmp_path: Path) -> None:
    host = Host(home, "one")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.md").write_text(PASSWORD)
    (host.folder / "link.md").symlink_to(outside / "private.md")
    (host.folder / "linked").symlink_to(outside)
    os.mkfifo(host.folder / "pipe")
    (host.project.parent / "linked-project").symlink_to(host.project)
    assert named(run("forget", "one", "m1", "--yes")) == []


def test_what_cannot_be_read_in_time_is_counted(files: Place, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(home, "one")
    for number in range(3):
        (host.folder / f"{number}.md").write_text(PASSWORD)
    for limit, value, count in (("MAX_FILES", 1, 2), ("TIME_LIMIT", -1.0, 3)):
        monkeypatch.setattr(host_files, limit, value)
        done = run("forget", "one", "--containing", "--yes", stdin=SECRET, code=None if count == 3 else 0)
        assert f"{count} files of the host could not be searched" in done.output


def test_a_copy_of_the_session_in_another_store_is_named_with_its_command(home: Path, files: Place) -> None:
    project = home / ".amplifier" / "projects" / "-tmp-x"
    for url in (f"jsonl:{project / 'sessions'}", f"sqlite:{project / 'context.db'}"):
        run("copy", files.url(), url, "--session", "one")
    former = project / "sessions" / "one" / "former" / "context-messages.archive.jsonl"
    former.parent.mkdir()
    former.write_text(PASSWORD)
    Host(home, "one")
    shown = run("forget", "one", "m1", "--yes").output
    for place in (f"jsonl:{project / 'sessions'} one", f"sqlite:{project / 'context.db'}"):
        assert f"to erase it there: `amplifier-context forget --containing --store {place}`" in shown
    assert SECRET not in shown
    assert "These files" not in shown


@pytest.mark.parametrize("url", ["jsonl", "sqlite"], indirect=True)
def test_what_is_forgotten_is_nowhere_in_the_files(filled: str, tmp_path: Path) -> None:
    assert is_in_files(KEY, tmp_path)
    run("forget", "one", "--containing", "--yes", stdin=f"{KEY}\n")
    run("forget", "two", "m21", "--yes")
    assert contents("one")[20] == "(erased)"
    assert not is_in_files(KEY, tmp_path)
    assert "sound" in run("verify", "one").output
    assert "not in one: m9999" in run("forget", "one", "m9999", "--yes", code=1).output
    assert "is no mark" in run("forget", "one", "x", "--yes", code=2).output
    run("forget", "one", "--yes", code=2)


@pytest.mark.parametrize("what", ["m21", "--containing"])
def test_forks_that_hold_what_is_forgotten_are_named_with_the_way_out(filled: str, tmp_path: Path, what: str) -> None:
    run("delete", "two", "--yes")
    run("fork", "one", "before", "--at", "m10")
    run("fork", "one", "child")
    run("fork", "child", "grandchild", "--at", "m40")
    shown = run("forget", "child", what, "--yes", stdin=f"{KEY}\n").output
    ways = dict(line.split(" contains the same; to erase it there: ") for line in shown.splitlines()[1:])
    assert set(ways) == {"one", "grandchild"}
    for command in ways.values():
        run(*shlex.split(command.strip("`"))[1:], "--yes", stdin=f"{KEY}\n")
    assert not is_in_files(KEY, tmp_path)


@pytest.mark.parametrize("url", ["jsonl"], indirect=True)
@pytest.mark.usefixtures("filled")
def test_a_text_that_is_piped_in_is_read_without_a_word() -> None:
    refused = run("forget", "one", "--containing", stdin=f"{KEY}\r\n", code=2)
    assert refused.stdout == ""
    assert "the command cannot ask for confirmation: pass --yes" in refused.stderr
    command = [sys.executable, "-c", "from amplifier_context_cli import main; main()", "forget", "one", "--containing"]
    pipes = {"input": f"{KEY}\r\n", "capture_output": True, "text": True}
    done = subprocess.run([*command, "--yes"], check=False, timeout=60, **pipes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one: 1 message erased\n", "")


def test_a_text_is_forgotten_however_it_is_escaped(url: str) -> None:
    secret = 'p"w\\x-sécret'
    arguments = json.dumps({"key": secret})
    call = {"id": "c", "type": "function", "function": {"name": "use", "arguments": arguments}}
    said = [
        f"the key is {secret}",
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"sent": arguments}, ensure_ascii=False)},
        f"\ud800 and again {secret}",
        "nothing here",
    ]
    keep(url, "one", said)
    assert "4 messages erased" in run("forget", "one", "--containing", "--yes", stdin=f"{secret}\n").output
    assert "sécret" not in run("show", "one", "--full").output
