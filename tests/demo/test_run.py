"""A session that outgrows its window, watched, and what makes a run fail."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.demo.conftest import Run, clone_at

pytestmark = pytest.mark.kernel

BUDGET = 3_000
PROVIDERS = "providers: [{module: provider-replay, config: {script: [Hello.]}}]\n"
PLAN = "session: {orchestrator: loop-replay, context: context-simple}\n" + PROVIDERS
FAULTY = """
from amplifier_context_testing.fakes import ListContext
__amplifier_module_type__ = "context"
class Faulty(ListContext):
    async def get_messages_for_request(self, token_budget=None, provider=None): return []
    async def get_messages(self): return self.messages[:-1]
async def mount(coordinator, config=None): await coordinator.mount("context", Faulty())
"""


def lines_with(result: Result, text: str) -> list[str]:
    return [line for line in result.output.splitlines() if text in line]


@pytest.mark.parametrize("context", ["context-simple", "context-summary"])
def test_the_demo_compacts_several_times_and_stays_valid(run: Run, tmp_path: Path, context: str) -> None:
    clone_at(tmp_path)
    result = run("--budget", BUDGET, "--context", context)
    assert result.exit_code == 0, result.output
    assert len(lines_with(result, "└ compacted")) >= 3
    assert lines_with(result, "63, all valid by the rules of OpenAI, Anthropic and the kernel")
    assert lines_with(result, "complete: every added message is kept unchanged, sha256")
    rows = re.findall(r"^ +(\d+)  [█▏▎▍▌▋▊▉░]+ +([\d,]+) of +3,000 ", result.output, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 64))
    assert all(int(tokens.replace(",", "")) <= BUDGET for _, tokens in rows)
    assert lines_with(result, "context.recall('m")


def test_an_invalid_request_and_an_incomplete_history_are_reported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.yaml").write_text(
        PLAN.replace("context-simple", "{module: context-faulty, source: faulty_context}")
    )
    (tmp_path / "faulty_context").mkdir()
    (tmp_path / "faulty_context" / "__init__.py").write_text(FAULTY)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the kernel adds the folder
    result = run("plan.yaml", "--prompt", "Hi.")
    assert result.exit_code == 1
    assert lines_with(result, "INVALID: the request is empty")
    assert lines_with(result, "1 provider rule broken")
    assert lines_with(result, "NOT COMPLETE: 2 messages were added, 1 are kept")


def test_ctrl_c_ends_with_a_summary_and_the_shells_code(tmp_path: Path) -> None:
    code = "from amplifier_context_cli import main; main()"
    command = [sys.executable, "-u", "-c", code, "run", "--pace", "0.1"]
    with subprocess.Popen(command, cwd=clone_at(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("list_folder" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "stopping after the running step" in output
    assert "complete: every added message is kept unchanged" in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("session: {a: b}\nproviders: [{api_key: hidden-secret, }, ]]", "plan.yaml is not YAML: "),
        ("- session", "there are no keys and values in the file"),
        (PROVIDERS, "no keys and values in `session`; write for example session: {orchestrator: loop-basic"),
        ("session: {orchestrator: loop-replay}", "`session.context` is missing; write for example"),
        ("session: {orchestrator: a, context: {module: b, config: 3}}", "in the config of b"),
        (f"{PLAN}tools: [{{}}]", "`tools[0]` has no `module`"),
        (f"{PLAN}prompts: hello", "`prompts` must be a list of texts"),
        (
            PLAN.replace("simple", "simpel"),
            "unknown module context-simpel; did you mean context-simple? Inst",
        ),
        (f"{PLAN}tools: [{{module: tool-nowhere}}]", "unknown module tool-nowhere Installed here: "),
        (PLAN.replace("context-simple", "{module: context-simple, config: {max_tokens: -7}}"), "max_tokens: -7 is imp"),
    ],
)
def test_the_error_of_a_bad_plan_names_what_is_wrong_and_quotes_nothing(
    run: Run, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    result = run("plan.yaml", "--prompt", "Hi.")
    output = " ".join(result.output.split())
    assert (result.exit_code, "Traceback" in output, "hidden-secret" in output) == (1, False, False), output
    assert expected in output.split("Error: ", 1)[1]
