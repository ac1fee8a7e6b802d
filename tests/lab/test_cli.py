"""`amplifier-context replay`, as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_core.cli import main
from amplifier_context_testing.talk import Talk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    talk = Talk().user("Mend src/loader.py, please.").work(8, "loader").say("src/loader.py is mended.")
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
    done = replay(data, "--no-floors", "--json", out, "--markdown")
    assert done.exit_code == 0, done.output
    assert "| context-simple |" in done.output
    told = json.loads(out.read_text())
    assert told["fraction"] == 0.25
    assert [row["name"] for row in told["managers"]] == ["context-simple"]


def test_peers_that_are_not_installed_are_skipped_with_a_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain_core", "langchain", "agent_framework", "pydantic_ai", "llama_index"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if ".lab.peers." in name]:
        monkeypatch.delitem(sys.modules, name)
    done = replay(data, "--no-floors", "--peers")
    assert done.exit_code == 0, done.output
    assert "skipped: langchain-trim is skipped" in done.output
    assert "pip install 'amplifier-context-testing[peers]'" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--context", "context-simpel"], "there is no context manager 'context-simpel'"),
        (["--context", "context-simple:target_usage=2"], "target_usage"),
        (["--budget", "lots"], "'lots' is not a number of tokens such as 32000 or 32k"),
        (["--min-messages", "1000"], "no session is left to replay"),
    ],
)
def test_mistakes_are_named(data: Path, arguments: list[str], said: str) -> None:
    done = replay(data, *arguments)
    assert done.exit_code != 0
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_file_that_is_no_recording_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("nope\n")
    done = replay(tmp_path / "bad.jsonl")
    assert done.exit_code == 1
    assert "bad.jsonl, line 1: not JSON" in done.output


def test_without_the_testing_package_it_says_what_brings_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("amplifier_context_testing")]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name.startswith("amplifier_context_testing"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    done = replay(data)
    assert done.exit_code == 1
    assert "pip install amplifier-context-testing" in done.output
