"""`amplifier-context replay`, as a user types it."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.lab import figures_file, read_sessions


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


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_the_sessions_of_a_store_are_replayed(tmp_path: Path, data: Path, scheme: str) -> None:
    url = f"{scheme}:{tmp_path / 'kept'}"
    asyncio.run(keep(url, "one", "two"))
    assert replayed(tmp_path, "--store", url)["sessions"] == ["one", "two"]
    assert replayed(tmp_path, data, "--store", url)["sessions"] == ["made-1", "one", "two"]
