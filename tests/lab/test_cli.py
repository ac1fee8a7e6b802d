"""`amplifier-context replay`, as a user types it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.cli.app import main
from amplifier_context_core.cli.formatting import display_width
from amplifier_context_core.stores import open_store
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.lab import command, figures_file, read_sessions


@pytest.fixture
def data(tmp_path: Path) -> Path:
    talk = ConversationBuilder().user("Mend src/loader.py, please.").work(8, "loader").say("src/loader.py is mended.")
    file = tmp_path / "made.jsonl"
    file.write_text(json.dumps({"id": "made-1", "messages": talk.messages}) + "\n")
    return file


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_it_prints_a_row_for_each_manager(data: Path) -> None:
    done = replay(
        data, "--context", "context-simple", "--context", "context-simple:target_usage=0.4", "--budget", "0.2k"
    )
    assert done.exit_code == 0, done.output
    for label in ("context-simple", "context-simple:target_usage=0.4", "newest", "newest-checkpointed", "unlimited"):
        assert label in done.output


def test_all_figures_go_into_a_file(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = replay(data, "--no-baselines", "--json", out, "--markdown")
    assert done.exit_code == 0, done.output
    assert "| context-simple |" in done.output
    figures = json.loads(out.read_text())
    assert [(row["name"], row["fraction"]) for row in figures["managers"]] == [("context-simple", 0.25)]


def test_budgets_planted_rules_pauses_and_halves_are_asked_for(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    several = ("--fraction", "0.3", "--fraction", "0.6", "--planted", "3", "--pauses", "--halves", "--misses")
    done = replay(data, "--no-baselines", "--json", out, "--markdown", *several)
    assert done.exit_code == 0, done.output
    assert "| context-simple | 30% |" in done.output
    assert "| context-simple | 60% |" in done.output
    assert "rules 1 and 3 planted" in done.output
    part = next(iter(read_sessions([data]))).part
    assert f"| {part} (1): context-simple | 30% |" in done.output
    figures = json.loads(out.read_text())
    assert figures["pauses"] == "pauses"
    missed = figures["managers"][0]["missed"]["sentences"]["made-1"]
    assert (
        len(missed["agent"])
        == figures["managers"][0]["last_view"]["agent"]["sought"]
        - (figures["managers"][0]["last_view"]["agent"]["found"])
    )


def test_chosen_columns_are_printed_in_their_order(data: Path) -> None:
    done = replay(data, "--no-baselines", "--markdown", "--columns", "effective, edits")
    assert done.exit_code == 0, done.output
    assert "| manager | effective | edits |" in done.output
    wrong = replay(data, "--columns", "efective")
    assert wrong.exit_code == 2
    assert "there is no column 'efective'; there are recall, " in wrong.output


def test_peers_that_are_not_installed_are_skipped_with_a_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain_core", "langchain", "agent_framework", "pydantic_ai", "llama_index"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if ".lab.peers." in name]:
        monkeypatch.delitem(sys.modules, name)
    done = replay(data, "--no-baselines", "--peers")
    assert done.exit_code == 0, done.output
    assert "skipped: langchain-trim: " in done.output
    assert "pip install 'amplifier-context-testing[peers]'" in done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--context", "context-simpel"], "there is no context manager 'context-simpel'"),
        (["--context", "context-simple:target_usage=2"], "target_usage"),
        (["--budget", "lots"], "'lots' is not a number of tokens such as 32000 or 32k"),
        (["--min-messages", "1000"], "no session is left to replay"),
    ],
)
def test_mistakes_are_named(data: Path, arguments: list[str], expected: str) -> None:
    done = replay(data, *arguments)
    assert done.exit_code != 0
    assert expected in done.output
    assert "Traceback" not in done.output


def test_a_file_that_is_no_recording_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("nope\n")
    done = replay(tmp_path / "bad.jsonl")
    assert done.exit_code == 1
    assert "bad.jsonl, line 1: not JSON" in done.output


# --- the table on any screen ------------------------------------------------------------------------------------------

LONG = 'context-simple:{"target_usage": 0.4, "ladder": ["fold", "drop"]}'


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_name_and_no_figure_is_cut_off_on_any_screen(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = replay(data, "--context", "context-simple", "--context", LONG, "--budget", "0.2k", "--markdown")
    _, heads, _, *rows = [line for line in done.stdout.splitlines() if line]
    wide = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")]
    assert len(wide) == 5
    shown = replay(data, "--context", "context-simple", "--context", LONG, "--budget", "0.2k").stdout
    lines = shown.splitlines()
    assert max(map(display_width, lines)) <= width
    for head in heads.strip("|").split("|")[1:]:
        assert re.search(rf"(^|  ){re.escape(head.strip())}($|  )", shown, re.MULTILINE), head
    timed = {heads.strip("|").split("|").index(head) for head in (" p50 ms ", " p99 ms ")}
    for label, *figures in wide:
        assert any(re.search(rf"(^|  ){re.escape(label)}($|  )", line) for line in lines) or width == 60
        for place, figure in enumerate(figures, 1):
            assert place in timed or re.search(rf"  {re.escape(figure)}($|  )", shown, re.MULTILINE), figure
    assert label_of(lines, LONG)


def label_of(lines: list[str], label: str) -> bool:
    """True if a label is there whole; on the narrowest screens it goes on in the next line."""
    return label.replace(" ", "") in "".join("".join(lines).split())


# --- the file ---------------------------------------------------------------------------------------------------------

SLOW = """
import time
from amplifier_context_testing.fakes import ListContext

class Slow(ListContext):
    async def get_messages_for_request(self, token_budget=None, provider=None):
        time.sleep(0.05)
        return await super().get_messages_for_request(token_budget, provider)

def slow(config):
    return Slow()

def broken(config):
    raise RuntimeError("broken on purpose")
"""


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A file of ten recordings, and beside it a module of managers that are slow, or fail."""
    (tmp_path / "managers_of_test.py").write_text(SLOW)
    lines = [
        json.dumps(
            {
                "id": f"made-{number}",
                "messages": ConversationBuilder().user("Look.").work(6, f"n{number}").say("Done.").messages,
            }
        )
        for number in range(10)
    ]
    file = tmp_path / "several.jsonl"
    file.write_text("\n".join(lines))
    return file


def test_an_unwritable_file_is_reported_before_anything_is_measured(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(command, "measure")
    assert isinstance(replay(data, "--budget", "0.2k").exception, NameError), "nothing can be measured"
    done = replay(data, "--json", "/nope/x.json", "--budget", "0.2k")
    assert done.exit_code == 1
    assert done.output == "Error: --json: /nope/x.json cannot be written: No such file or directory\n"


@pytest.mark.parametrize("share", [1e-9, math.inf], ids=["rarely", "always"])  # that figures are written meanwhile
def test_what_was_measured_is_kept_when_a_later_manager_fails(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(figures_file, "_SHARE", share)
    out = tmp_path / "figures.json"
    chosen = ("--context", "newest", "--context", "managers_of_test:broken", "--no-baselines")
    done = replay(several, *chosen, "--json", out)
    assert isinstance(done.exception, RuntimeError)
    figures = json.loads(out.read_text())
    assert figures["complete"] is False
    newest, *broken = figures["managers"]
    assert (newest["name"], len(newest["by_session"])) == ("newest", 10)
    assert [one["by_session"] for one in broken] in ([], [{}])
    assert replay(several, *chosen[:2], "--no-baselines", "--json", out).exit_code == 0
    assert json.loads(out.read_text())["complete"] is True


def test_the_file_is_complete_json_at_every_moment_even_when_the_process_is_killed(
    several: Path, tmp_path: Path
) -> None:
    out = tmp_path / "figures.json"
    code = "from amplifier_context_core.cli import main; main()"
    chosen = ["--context", "managers_of_test:slow", "--no-baselines", "--json", str(out)]
    running = subprocess.Popen(
        [sys.executable, "-c", code, "replay", str(several), *chosen],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    measured: list[int] = []
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (measured and measured[-1] >= 3):
            if out.exists():
                figures = json.loads(out.read_text())
                assert figures["complete"] is False
                measured.append(len(figures["managers"][0]["by_session"]))
            time.sleep(0.01)
    finally:
        running.kill()
        running.wait()
    assert measured[-1] >= 3
    assert measured == sorted(measured)
    assert len(json.loads(out.read_text())["managers"][0]["by_session"]) >= 3


# --- where recordings are ---------------------------------------------------------------------------------------------


async def keep(url: str, *names: str) -> None:
    for name in names:
        store = open_store(url, durability="flush")
        manager = ContextManager(load_config({"token_counter": "heuristic"}), session_id=name, store=store)
        for message in ConversationBuilder().user(f"Mend {name}.").work(5, name).say("Done.").messages:
            await manager.add_message(message)
        await manager.set_messages((await manager.get_messages())[:-1])  # something for the archive
        await manager.close()


def replayed(*arguments: object) -> dict[str, list[str]]:
    """The ids of the sessions that were replayed, and what was skipped."""
    out = Path(str(arguments[0])) / "figures.json"
    done = replay(*arguments[1:], "--context", "newest", "--no-baselines", "--json", out)
    assert done.exit_code == 0, done.output
    figures = json.loads(out.read_text())
    return {"sessions": [session["id"] for session in figures["sessions"]], "skipped": figures["skipped"]}


def test_recordings_are_found_in_the_folders_of_kept_sessions(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "x" / "sessions"
    asyncio.run(keep(f"jsonl:{folder}", "one", "two"))
    transcript = "".join(
        json.dumps(message) + "\n" for message in ConversationBuilder().user("Hi.").work(3, "h").say("Ho.").messages
    )
    for name in ("two", "three"):  # a host keeps its own beside ours
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "transcript.jsonl").write_text(transcript)
        (folder / name / "events.jsonl").write_text('{"event": "x"}\n')
    (folder / "odd.jsonl").write_text("nope\n")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.jsonl").write_text(transcript)
    found = replayed(tmp_path, tmp_path / "projects")
    assert found["sessions"] == ["one", "three", "two"]
    (reason,) = found["skipped"]
    assert "odd.jsonl, line 1: not JSON" in reason


def test_recordings_with_the_same_id_are_all_replayed(tmp_path: Path) -> None:
    talk = ConversationBuilder().user("Hi.").work(3, "h").say("Ho.")
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "same", "messages": talk.messages}))
    assert replayed(tmp_path, tmp_path)["sessions"] == ["same", "same (b)", "same (c)"]


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_the_sessions_of_a_store_are_replayed(tmp_path: Path, data: Path, scheme: str) -> None:
    url = f"{scheme}:{tmp_path / 'kept'}"
    asyncio.run(keep(url, "one", "two"))
    assert replayed(tmp_path, "--store", url)["sessions"] == ["one", "two"]
    assert replayed(tmp_path, data, "--store", url)["sessions"] == ["made-1", "one", "two"]


def test_one_session_of_a_store_is_replayed_and_no_other_is_read(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'kept'}"
    asyncio.run(keep(url, "one", "two", "three"))
    (file,) = (tmp_path / "kept" / "three").glob("context-messages.jsonl")
    file.write_bytes(file.read_bytes()[:-20])  # damaged: to read it would be reported
    assert replayed(tmp_path, "--store", url, "--session", "two") == {"sessions": ["two"], "skipped": []}
    assert replayed(tmp_path, "--store", url, "--session", "two", "--session", "one")["sessions"] == ["two", "one"]
    assert "there is no session 'twoo'" in replay("--store", url, "--session", "twoo").output
    assert "name the store too" in replay(tmp_path, "--session", "two").output


def test_sessions_above_a_number_of_messages_are_skipped_and_named(tmp_path: Path, data: Path) -> None:
    url = f"jsonl:{tmp_path / 'kept'}"
    asyncio.run(keep(url, "one"))
    found = replayed(tmp_path, data, "--store", url, "--max-messages", "12")
    assert (found["sessions"], len(found["skipped"])) == (["one"], 1)
    assert found["skipped"][0].startswith("made-1: ")


def test_without_a_screen_it_says_what_is_replayed_and_how_far_it_is(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUIET", 0.0)
    done = replay(data)
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"replaying 1 session, [\d,]+ messages, through 4 managers", lines[0])
    assert re.match(r"replay 1 of 4: \S+, made-1, request 1$", lines[1])
    assert any(line.startswith("replay 4 of 4: ") for line in lines)


def test_without_data_and_store_it_says_what_to_name() -> None:
    done = replay()
    assert done.exit_code == 2
    assert "name recordings or folders of them (DATA), or a store of sessions (--store)" in done.output


# --- notices ----------------------------------------------------------------------------------------------------------


def test_notices_name_the_recording_and_the_manager(tmp_path: Path) -> None:
    giant = ConversationBuilder().user("word " * 4_000).work(4, "g").say("Done.").messages
    small = ConversationBuilder().user("Hi.").work(8, "s").say("Done.").messages
    lines = [json.dumps({"id": name, "messages": messages}) for name, messages in (("giant", giant), ("small", small))]
    (tmp_path / "both.jsonl").write_text("\n".join(lines))
    out = tmp_path / "figures.json"
    done = replay(tmp_path / "both.jsonl", "--no-baselines", "--budget", "1k", "--json", out)
    assert done.exit_code == 0, done.output
    assert "test-session" not in done.output
    (line,) = [line for line in done.stderr.splitlines() if "what must be kept" in line]
    assert line.startswith("context-simple, giant: what must be kept has ")
    (row,) = json.loads(out.read_text())["managers"]
    assert [notice["session"] for notice in row["notices"]] == ["giant"]


def test_a_notice_of_many_recordings_is_one_line(tmp_path: Path, several: Path) -> None:
    done = replay(several, "--no-baselines", "--context", "context-simple:max_tokns=3")
    (line,) = [line for line in done.stderr.splitlines() if "max_tokns" in line]
    assert line.startswith("context-simple:max_tokns=3, made-0, made-1, made-2 and 7 more: ")
