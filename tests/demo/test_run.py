"""The main job: a session that outgrows its window, watched."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amplifier_context_cli.app import main

from .conftest import Run, clone_at, lines_with

pytestmark = pytest.mark.kernel

BUDGET = 3_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The default plan in a folder like a clone, once for those tests that only look at it."""
    folder = clone_at(tmp_path_factory.mktemp("clone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "110")
        return CliRunner().invoke(main, ["run", "--budget", str(BUDGET)])


def test_the_demo_compacts_several_times_and_stays_valid(demo: Result) -> None:
    assert demo.exit_code == 0, demo.output
    assert len(lines_with(demo, "└ compacted")) >= 3
    assert lines_with(demo, "63, all valid by the rules of OpenAI, Anthropic and the kernel")
    assert lines_with(demo, "complete: every added message is kept unchanged, sha256")


def test_every_request_has_a_line_that_stays_within_its_budget(demo: Result) -> None:
    rows = re.findall(r"^ +(\d+)  [█▏▎▍▌▋▊▉░]+ +([\d,]+) of +([\d,]+) ", demo.output, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 64))
    assert all(int(tokens.replace(",", "")) <= BUDGET for _, tokens, _ in rows)
    assert {budget for _, _, budget in rows} == {"3,000"}


def test_a_plan_brings_its_own_prompts_and_prompt_replaces_them(run: Run, plan: Callable[..., Path]) -> None:
    file = plan(more="prompts: [From the plan.]")
    assert lines_with(run(file), "user  From the plan.")
    result = run(file, "--prompt", "First of mine.", "--prompt", "Second of mine.")
    assert [line.split("  ")[1] for line in lines_with(result, "user  ")] == ["First of mine.", "Second of mine."]
    assert lines_with(result, "agent  Hello.")


def test_context_swaps_the_module_and_keeps_its_config(run: Run, plan: Callable[..., Path]) -> None:
    file = plan(context="{module: context-other, config: {max_tokens: 777}}")
    result = run(file, "--context", "context-simple", "--prompt", "Hi.")
    assert result.exit_code == 0, result.output
    assert lines_with(result, " of    777 ")


def test_a_source_that_is_not_fetched_is_reported_with_its_replacement(run: Run, plan: Callable[..., Path]) -> None:
    source = "git+https://user:secret@example.org/amplifier-module-context-simple@main"
    result = run(plan(context=f'{{module: context-simple, source: "{source}"}}'), "--prompt", "Hi.")
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    assert (
        "note context-simple: nothing is fetched here, the installed amplifier-context-simple 0.1.0 is used" in printed
    )
    assert "not git+https://example.org/amplifier-module-context-simple@main" in printed
    assert "secret" not in printed


# --- recorded sessions ------------------------------------------------------------------------------------------------


def test_a_recording_in_a_quarter_of_its_size_compacts(run: Run, tmp_path: Path) -> None:
    from amplifier_context_testing import coding_session

    file = tmp_path / "transcript.jsonl"
    file.write_text("\n".join(json.dumps(message) for message in coding_session(60, seed=2)))
    result = run("--transcript", file)
    assert result.exit_code == 0, result.output
    assert lines_with(result, "recording transcript (number 0 of transcript.jsonl)")
    assert lines_with(result, "└ compacted")


def test_an_invalid_request_ends_in_exit_code_1(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str]
) -> None:
    entry = faulty_context("async def get_messages_for_request(self, token_budget=None, provider=None): return []")
    result = run(plan(context=entry), "--prompt", "Hi.")
    assert result.exit_code == 1
    assert lines_with(result, "INVALID: the request is empty")
    assert lines_with(result, "1 provider rule broken")


def test_an_incomplete_history_ends_in_exit_code_1(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str]
) -> None:
    entry = faulty_context("async def get_messages(self): return self.messages[:-1]")
    result = run(plan(context=entry), "--prompt", "Hi.")
    assert result.exit_code == 1
    assert lines_with(result, "NOT COMPLETE: 2 messages were added, 1 are kept")


# --- what makes it fail -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_ends_with_a_summary_and_the_shells_code(clone: Path) -> None:
    code = "from amplifier_context_cli import main; main()"
    command = [sys.executable, "-u", "-c", code, "run", "--pace", "0.1"]
    with subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("list_folder" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "stopping after the running step" in output
    assert "complete: every added message is kept unchanged" in output
