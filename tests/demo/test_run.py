"""The main job: a session that outgrows its window, watched."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from amplifier_context_core.cli.app import main
from amplifier_context_core.kernel import warn_of_duplicate_ids
from amplifier_context_testing import Conversation, conversations
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.distributions import install
from tests.pages import between, read

from .conftest import PLAN, Run, clone_at, lines_with

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


@pytest.mark.parametrize("ratio", [0.74, 1.3])
def test_all_figures_are_in_the_tokens_that_the_provider_reports(run: Run, clone: Path, ratio: float) -> None:
    """A provider whose tokenizer disagrees with ours, as all but OpenAI's do."""
    mounts = yaml.safe_load(PLAN.read_text())
    mounts["providers"][0]["config"]["usage_ratio"] = ratio
    (clone / "plan.yaml").write_text(yaml.safe_dump(mounts))
    result = run("plan.yaml", "--budget", BUDGET)
    assert result.exit_code == 0, result.output
    rows = [
        [int(figure.replace(",", "")) for figure in found]
        for found in re.findall(r"[█▏▎▍▌▋▊▉░] +([\d,]+) of +([\d,]+) +([\d,]+) +(\d+)%", result.output)
    ]
    assert len(rows) > 50
    for tokens, budget, cacheable, share in rows:
        assert cacheable <= tokens <= budget == BUDGET
        assert share == pytest.approx(100 * cacheable / tokens, abs=1)
    (cache,) = lines_with(result, "prompt cache")
    sent = sum(tokens for tokens, *_ in rows)
    cached = sum(cacheable for _, _, cacheable, _ in rows)
    assert f"{cached / sent:.0%} of the {sent:,} sent tokens" in cache


def test_a_line_says_which_tools_were_called_and_on_what(demo: Result) -> None:
    assert lines_with(demo, "list_folder .")
    assert lines_with(demo, "read_file part_0.py")
    assert lines_with(demo, "search_files ")


def test_a_compaction_says_what_it_freed_and_what_it_cost(demo: Result) -> None:
    line = lines_with(demo, "└ compacted")[0]
    assert re.search(
        r"compacted [\d,]+ → [\d,]+ tokens · freed by \w+ [\d,]+.* · prefix invalidated [\d,]+ · \d+ ms", line
    )


def test_a_folded_message_is_recalled_from_the_history(demo: Result, tmp_path: Path) -> None:
    folded = r"recall +m\d+ .* folded; the model now sees this line instead:\n +m\d+ \w+"
    assert re.search(folded, demo.output)
    original = demo.output.split("returns the original")[1].splitlines()[1].strip().rstrip("…")
    sources = "\n".join(file.read_text() for file in clone_at(tmp_path).glob("part_*.py"))
    assert original in sources or re.search(r"^(part_\d+\.py:\d+: |file |dir )", original)


def test_the_same_run_again_has_the_same_history(demo: Result, run: Run, clone: Path) -> None:
    again = run("--budget", BUDGET)
    assert lines_with(again, "sha256") == lines_with(demo, "sha256")


def test_another_folder_is_explored_with_path(run: Run, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "only_here.txt").write_text("something_special\n")
    result = run("--path", other)
    assert lines_with(result, "read_file only_here.txt")
    assert not lines_with(result, "part_0.py")


def test_a_plan_brings_its_own_prompts_and_prompt_replaces_them(run: Run, plan: Callable[..., Path]) -> None:
    file = plan(more="prompts: [From the plan.]")
    assert lines_with(run(file), "user  From the plan.")
    result = run(file, "--prompt", "First of mine.", "--prompt", "Second of mine.")
    assert [line.split("  ")[1] for line in lines_with(result, "user  ")] == ["First of mine.", "Second of mine."]
    assert lines_with(result, "agent  Hello.")


def test_what_is_piped_in_is_one_prompt(run: Run, plan: Callable[..., Path]) -> None:
    result = run(plan(), typed="Two lines,\none prompt.\n")
    assert result.exit_code == 0
    assert lines_with(result, "requests      1, all valid")
    assert lines_with(result, "history       2 messages, complete")


def test_context_swaps_the_module_and_keeps_its_config(run: Run, plan: Callable[..., Path]) -> None:
    file = plan(context="{module: context-other, config: {max_tokens: 777}}")
    result = run(file, "--context", "context-simple", "--prompt", "Hi.")
    assert result.exit_code == 0, result.output
    assert lines_with(result, " of    777 ")


def test_a_warning_of_a_module_is_a_note_not_a_log_line(run: Run, plan: Callable[..., Path]) -> None:
    file = plan(context="{module: context-simple, config: {max_tokns: 777}}")
    assert lines_with(run(file, "--prompt", "Hi."), "note  context-simple: unknown config key 'max_tokns' is ignored")


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


def test_a_source_that_is_a_folder_is_used_without_a_word(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str]
) -> None:
    assert "fetched" not in run(plan(context=faulty_context("pass")), "--prompt", "Hi.").output


def test_a_relative_source_is_a_folder_beside_the_plan_wherever_the_command_runs(
    run: Run,
    plan: Callable[..., Path],
    faulty_context: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = faulty_context("pass")
    folder = entry.split("source: ")[1].rstrip("}")
    file = plan(context=entry.replace(folder, f"./{Path(folder).name}"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    result = run(file, "--prompt", "Hi.")
    assert result.exit_code == 0, result.output
    assert "fetched" not in result.output


@pytest.mark.parametrize("written", ["16k", "16_000", "16,000", "0.016m", "16000"])
def test_a_budget_is_written_in_any_way(run: Run, plan: Callable[..., Path], written: str) -> None:
    assert lines_with(run(plan(), "--prompt", "Hi.", "--budget", written), " of 16,000 ")


def test_an_empty_session_id_is_an_error(run: Run, plan: Callable[..., Path]) -> None:
    result = run(plan(), "--prompt", "Hi.", "--session", "")
    assert result.exit_code == 2
    assert "session_id: must be text of at least one character" in result.output


def test_outputs_that_were_clipped_are_no_history_that_fitted(run: Run, tmp_path: Path) -> None:
    talk = ConversationBuilder().user("What is in the file?")
    talk.round("read_file", {"path": "large.txt"}, " ".join(f"value_{number * 7919}" for number in range(8_000)))
    talk.round("read_file", {"path": "small.txt"}, "nothing").say("Values.")
    (tmp_path / "recorded.jsonl").write_text(json.dumps({"id": "large", "messages": talk.messages}))
    result = run("--transcript", "recorded.jsonl", "--budget", "16k")
    assert result.exit_code == 0, result.output
    compactions = " ".join(result.output.split("compactions ")[-1].split("prompt cache")[0].split())
    found = re.search(
        r"none: large tool outputs of (\d+) rounds? are clipped, ([\d,]+) of ([\d,]+) tokens are left", compactions
    )
    assert found, compactions
    rounds, left_out, history = (int(figure.replace(",", "")) for figure in found.groups())
    assert rounds == 1
    assert "(m2 " in compactions
    largest = max(int(row.replace(",", "")) for row in re.findall(r"[█▏▎▍▌▋▊▉░] +([\d,]+) of", result.output))
    assert history - left_out == pytest.approx(largest, rel=0.1)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_every_line_fits_the_screen(clone: Path, run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("--budget", BUDGET).output.splitlines()
    assert max(map(len, lines)) <= width
    (heading,) = [line for line in lines if line.startswith("   #  ")]
    assert heading.endswith("tools called")
    rows = [line for line in lines if re.match(r" +\d+  [█▏▎▍▌▋▊▉░]", line)]
    assert len(rows) == 63
    assert {row.index(" of ") for row in rows} == {heading.index(" of ")}


def test_the_log_of_debug_is_without_the_kernels_noise(clone: Path) -> None:
    code = "from amplifier_context_core.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--debug", "--plain"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert "Passing providers to orchestrator" in done.stderr
    assert "model_dump() not available" not in done.stderr


# --- which module it is -----------------------------------------------------------------------------------------------


def test_the_head_names_the_distribution_of_the_mounted_module(demo: Result) -> None:
    version = metadata.version("amplifier-context-simple")
    head = demo.output.splitlines()[0]
    assert head.endswith(f"memory: context-simple (amplifier-context-simple {version})")
    assert between(read("README.md"), "demo").splitlines()[1] == head


def test_another_distribution_that_is_mounted_for_the_same_id_is_named(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str], tmp_path: Path
) -> None:
    faulty_context("async def get_messages(self): return []")  # its folder is a package now
    install(tmp_path, "acme-module", "1.0.7", "amplifier.modules", {"context-simple": "faulty_context:mount"})
    sys.path.insert(0, str(tmp_path))
    warn_of_duplicate_ids.cache_clear()
    result = run(plan(), "--prompt", "Hi.")
    warn_of_duplicate_ids.cache_clear()
    assert lines_with(result, "NOT COMPLETE")  # so it was mounted
    shown = " ".join(result.output.split())
    assert "memory: context-simple (acme-module 1.0.7) note context-simple: acme-module 1.0.7 and amplifier-" in shown


def test_the_folder_of_a_source_is_named_in_the_head(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str], tmp_path: Path
) -> None:
    entry = faulty_context("async def get_messages(self): return []")
    head = " ".join(run(plan(context=entry), "--prompt", "Hi.").output.split("\n\n")[0].split())
    assert head.endswith(f"memory: context-faulty (folder {tmp_path / 'faulty_context'})")


# --- recorded sessions ------------------------------------------------------------------------------------------------


def asks(made: Conversation) -> bool:
    """Without a user's message there is nothing to replay."""
    return any(message["role"] == "user" for message in made.messages)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    file = tmp_path / "recorded.jsonl"
    lines = [{"id": made.name, "messages": made.messages} for made in conversations() if asks(made)]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def test_a_replayed_transcript_keeps_its_history(run: Run, recordings: Path) -> None:
    for index in range(len(recordings.read_text().splitlines())):
        result = run("--transcript", recordings, "--index", index, "--budget", 500)
        assert result.exit_code == 0, result.output
        assert lines_with(result, "complete: every added message is kept unchanged")


def test_a_recording_in_a_quarter_of_its_size_compacts(run: Run, tmp_path: Path) -> None:
    from amplifier_context_testing import coding_session

    file = tmp_path / "transcript.jsonl"
    file.write_text("\n".join(json.dumps(message) for message in coding_session(60, seed=2)))
    result = run("--transcript", file)
    assert result.exit_code == 0, result.output
    assert lines_with(result, "recording transcript (number 0 of transcript.jsonl)")
    assert lines_with(result, "└ compacted")


def test_a_recording_with_malformed_messages_is_replayed_as_far_as_it_goes(run: Run, tmp_path: Path) -> None:
    call = {"function": {"name": "look", "arguments": "{"}}  # no id, and half of its arguments
    messages = [
        {"foo": 1},
        {"role": "user", "content": [3, {"type": "text", "text": "Hi."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "nobody asked"},
        {"role": "assistant", "content": "Done."},
    ]
    file = tmp_path / "odd.jsonl"
    file.write_text(json.dumps({"id": "odd", "messages": messages}))
    result = run("--transcript", file)
    assert result.exit_code == 0, result.output
    assert lines_with(result, "agent  Done.")


def test_a_plan_lends_a_replay_its_context(run: Run, plan: Callable[..., Path], recordings: Path) -> None:
    file = plan(context="{module: context-simple, config: {compact_treshold: 0.5}}")
    result = run(file, "--transcript", recordings, "--budget", 600)
    assert lines_with(result, "unknown config key 'compact_treshold'")


# --- what makes it fail -----------------------------------------------------------------------------------------------


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


def test_a_changed_word_in_the_history_is_found(
    run: Run, plan: Callable[..., Path], faulty_context: Callable[[str], str]
) -> None:
    entry = faulty_context("async def get_messages(self): return [{**m, 'content': 'x'} for m in self.messages]")
    result = run(plan(context=entry), "--prompt", "Hi.")
    assert result.exit_code == 1
    assert "the first difference is at index 0" in " ".join(result.output.split())


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_ends_with_a_summary_and_the_shells_code(clone: Path) -> None:
    code = "from amplifier_context_core.cli import main; main()"
    command = [sys.executable, "-u", "-c", code, "run", "--pace", "0.1"]
    with subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("list_folder" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "stopping after the running step" in output
    assert "complete: every added message is kept unchanged" in output
