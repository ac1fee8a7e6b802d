"""`sessions` and `show` list what is kept, and fit the terminal; `prune` erases old families whole, nothing else."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amplifier_context_cli import prune, sessions
from amplifier_context_cli.formatting import display_width
from amplifier_context_core.stores import SessionInfo
from tests.cli.kept import SECRET, fill, in_store, keep, messages, opened, rows, run


@pytest.mark.parametrize("width", ["60", "140"])
def test_lists_fit_the_screen_and_cut_no_id_or_word(url: str, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    long = "a-session-with-a-name-that-is-longer-than-any-screen-" * 3
    for name in ("short", long, "日本語のセッション", "-with 'odd' \"name\""):
        keep(url, name, [f"First \x1b[2J 日本 of {name[:9]}: " + "words " * 60])
    monkeypatch.setenv("COLUMNS", width)
    lines = run("sessions").output.splitlines()
    assert [line for line in lines if display_width(line) > int(width)] == [long]
    for name in ("short", "日本語のセッション", shlex.quote("-with 'odd' \"name\"")):
        assert any(name in line for line in lines)
    assert sum("First � 日本 of " in line or "First �[2J 日本 of " in line for line in lines) == 4
    assert all(re.search(r" \d\d\d\d-\d\d-\d\d \d\d:\d\d [+-]\d\d\d\d$", line) for line in lines if " kB  " in line)
    text = "several words that are used again and again " * 9
    keep(url, "words", [text])
    (line,) = run("show", "words").output.splitlines()
    assert int(width) - 8 < display_width(line) <= int(width)
    assert text.startswith(f"{line.removesuffix('…').split('  ')[-1].strip()} ")


def test_sessions_are_listed_with_what_each_is_a_fork_of(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for parent, child in (("one", "child"), ("child", "grand child")):
        run("fork", parent, child)
        keep(filled, child, ["Another wish."])
    assert "elsewhere.db" in run("sessions", at="sqlite:elsewhere.db", code=1).output, "before the variable"
    assert re.search(r"^one\s+121", run("sessions").output, re.MULTILINE)
    parents = {row["session_id"]: row["fork_of"] for row in rows("sessions")}
    assert parents == {"one": "", "two": "", "child": "one", "grand child": "child"}
    assert re.search(r"^'grand child' .*\n.*\n    fork of child$", run("sessions").output, re.MULTILINE)
    monkeypatch.setattr(sessions, "DETAILED", 1)
    done = run("sessions")
    assert (done.stdout.count("fork of "), "for the newest 1 only" in done.stderr) == (1, True)


def test_no_sessions_are_no_error(filled: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        run("delete", name, "--yes")
    for command in ("sessions", "verify", "repair"):
        assert f"no sessions in {filled}" in run(command).output
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("AMPLIFIER_CONTEXT_STORE")
    for arguments, code in ((["sessions"], 0), (["verify"], 0), (["show", "one"], 1)):
        shown = run(*arguments, code=code).output
        assert re.search(r"in jsonl:~/\.amplifier/projects/project-[0-9a-f]{8}/sessions", shown)
        assert "name a store with --store" in shown
    assert list(home.iterdir()) == []
    fill(f"jsonl:{tmp_path}/kept/{str(project).replace('/', '-')}", "here", 4, 1)
    assert "here" in run("sessions", at=f"jsonl:{tmp_path}/kept/{{project}}").output  # as Amplifier names it


def test_an_id_is_printed_as_it_must_be_typed(url: str) -> None:
    odd = '-it\'s "odd" $HOME'
    keep(url, odd, [f"wish {number} {SECRET}" for number in range(3)])
    made, _, of = run("fork", "--", odd).output.partition(": 3 messages of ")
    assert shlex.split(of) == [odd]
    (fork,) = shlex.split(made)
    shown = run("forget", "--yes", "--", odd, "m1").output
    assert "1 message erased" in shown
    (command,) = re.findall("`(.*)`", shown)
    assert shlex.split(command) == ["amplifier-context", "forget", "--store", url, "--", fork, "m1"]
    run("forget", "--yes", *shlex.split(command)[2:])
    assert not any(SECRET in run("show", "--", name).output.splitlines()[0] for name in (odd, fork))
    assert f"similar: {shlex.quote(odd)}" in run("show", "--", odd[:-1], code=1).output


def test_a_session_is_shown_line_by_line_in_part_and_in_full(filled: str) -> None:
    def marks(*options: str) -> list[str]:
        return [line.split()[0] for line in run("show", "one", *options).output.splitlines()]

    assert marks() == [f"m{number}" for number in range(1, 122)]
    assert marks("--last", "2") == marks("--from", "m120") == ["m120", "m121"]
    assert [row["mark"] for row in messages("one", "--last", "2")] == ["m120", "m121"]
    assert SECRET in run("show", "one", "--full").output
    assert "its newest is m121" in run("show", "one", "--from", "m9999").output
    assert "no archived messages" in run("show", "one", "--archived").output


def test_a_missing_session_is_reported_with_the_most_similar_id(filled: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    plain = ("show", "view", "context", "explain", "fork", "repair", "compact", "pins", "delete", "undo")
    marked = ("forget ones m1", "pin ones m1", "unpin ones m1", f"report ones -o {page}")
    for command in (*(f"{name} ones" for name in plain), *marked):
        assert "there is no session 'ones'" in (shown := run(*command.split(), code=1).output)
        assert "similar: one" in shown
    assert not page.exists()


class Later(datetime):
    """The time in 40 days."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + timedelta(days=40)


def there(*options: str) -> set[str]:
    return {row["session_id"] for row in rows("sessions", *options) if "session_id" in row}


@pytest.fixture
def stored(url: str) -> str:
    """Three sessions, and a fork of the first, which is the newest."""
    for name in "abc":
        keep(url, name, ["Do the work.", {"role": "assistant", "content": "I do it."}])
    in_store(url, lambda store: store.fork("a", "a-fork", 1))
    return url


def test_a_dry_run_a_no_and_what_names_no_sessions_erase_nothing(stored: str) -> None:
    assert "4 sessions of 4 would be erased" in run("prune", "--keep", "0", "--dry-run").output
    assert "Erase 4 sessions of 4" in run("prune", "--keep", "0", stdin="n\n", code=1).output
    for arguments in ((), ("--older-than", "soon"), ("--older-than", "-1d"), ("--keep", "-1")):
        run("prune", *arguments, code=2)
    assert there() == {"a", "a-fork", "b", "c"}


def test_families_changed_last_or_younger_than_the_age_are_kept(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0 sessions" in run("prune", "--older-than", "30d", "--yes").output
    monkeypatch.setattr(prune, "datetime", Later)
    assert "0 sessions" in run("prune", "--older-than", "8w", "--yes").output
    run("prune", "--older-than", "30d", "--keep", "2", "--yes")  # erases what both options name
    assert {"a", "a-fork"} < there()
    assert len(there()) == 3
    run("prune", "--keep", "1", "--yes")
    assert there() == {"a", "a-fork"}  # the family stays whole
    run("prune", "--older-than", "30d", "--yes")
    assert there() == set()


def test_a_session_that_is_open_keeps_its_family(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is opened after the list was made, too."""
    with opened(stored, "b"):
        run("prune", "--keep", "1", "--yes")
    assert there() == {"a", "a-fork", "b"}
    monkeypatch.setattr(prune, "_may_go", lambda *_: True)
    with opened(stored, "a-fork"):
        assert "1 session erased" in run("prune", "--keep", "0", "--yes", code=1).output
    assert there() == {"a", "a-fork"}


def test_what_changes_while_it_asks_is_kept_with_its_family(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(*_: object, **__: object) -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(keep, stored, "a-fork", ["One more."]).result()

    monkeypatch.setattr(prune.click, "confirm", confirm)
    run("prune", "--keep", "0", code=1)
    assert there() == {"a", "a-fork"}


def test_a_session_whose_time_is_unknown_is_kept_and_has_no_age() -> None:
    info, hour = SessionInfo("a", length=1, updated="1970-01-01T00:00:00.000+00:00"), timedelta(hours=1)
    assert not prune._may_go([info], hour)
    assert not sessions._is_between(info, hour, None)
    assert sessions._is_between(info, None, None)


def test_sessions_are_listed_by_age_by_title_and_by_number(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {"a", "a-fork", "b", "c"}
    monkeypatch.setattr(sessions, "datetime", Later)
    assert (there("--newer-than", "6w"), there("--older-than", "6w")) == (everything, set())
    assert (there("--newer-than", "30d"), there("--older-than", "900h")) == (set(), everything)
    for name in ("d", "e"):
        keep(stored, name, ["Mend the PARSER first."])
    assert there("--match", "the parser") == {"d", "e"}
    assert there("--match", "the parser", "--last", "1") == {"e"}
    assert "none of 6 sessions in" in run("sessions", "--match", "zyzzyva").output
