"""What can be wrong with a plan, a file or an installation is reported in a sentence with the way out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

PROVIDERS = "providers: [{module: provider-replay}]"


def error_of(result: object) -> str:
    """The output as one line; there must be an error and no traceback."""
    output = " ".join(str(getattr(result, "output", "")).split())
    assert getattr(result, "exit_code", None) == 1, output
    assert "Error: " in output
    assert "Traceback" not in output
    return output.split("Error: ", 1)[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("session: {orchestrator: loop-replay", "is not YAML: "),
        ("", "the file is empty"),
        ("- session", "the file is a list, it must be keys and values"),
        (PROVIDERS, "`session` is missing; write for example session: {orchestrator: loop-basic"),
        ("session: {context: context-simple}", "`session.orchestrator` is missing; write for example"),
        ("session: {orchestrator: loop-replay}", "`session.context` is missing; write for example"),
        ("session: {orchestrator: a, context: {config: {}}}", "`session.context` has no `module`"),
        ("session: {orchestrator: a, context: {module: b, config: 3}}", "the config of b is a single value"),
        ("session: {orchestrator: a, context: b}", "`providers` is missing"),
        ("session: {orchestrator: a, context: b}\nproviders: x", "`providers` is a text, it must be a list"),
        ("session: {orchestrator: a, context: b}\nproviders: [x]", "`providers[0]` is a text"),
        (f"session: {{orchestrator: a, context: b}}\n{PROVIDERS}\ntools: [{{}}]", "`tools[0]` has no `module`"),
        (f"session: {{orchestrator: a, context: b}}\n{PROVIDERS}\nprompts: hello", "`prompts` must be a list of texts"),
    ],
)
def test_the_error_of_a_bad_plan_names_the_key_and_a_correct_form(
    run: Run, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    assert expected in (error := error_of(run("plan.yaml", "--prompt", "Hi.")))
    assert error.startswith("plan.yaml")


def test_a_yaml_error_names_the_line_and_quotes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("session: {a: b}\nproviders: [{api_key: hidden-secret, }, ]]")
    assert "(line 2, column" in (error := error_of(run("plan.yaml")))
    assert "hidden-secret" not in error


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"context": "context-simpel"}, "unknown module context-simpel; did you mean context-simple?"),
        ({"orchestrator": "loop-nowhere"}, "unknown module loop-nowhere"),
        ({"providers": "[{module: provider-nowhere}]"}, "unknown module provider-nowhere"),
        ({"more": "tools: [{module: tool-nowhere}]"}, "unknown module tool-nowhere"),
    ],
)
def test_an_unknown_module_is_named_with_those_there_are(
    run: Run, plan: Callable[..., Path], parts: dict[str, str], expected: str
) -> None:
    assert expected in (error := error_of(run(plan(**parts), "--prompt", "Hi.")))
    assert "Installed here: " in error


@pytest.mark.kernel
def test_the_error_of_a_config_value_names_key_and_range(run: Run, plan: Callable[..., Path]) -> None:
    entry = "{module: context-simple, config: {compact_threshold: 7}}"
    error = error_of(run(plan(context=entry), "--prompt", "Hi."))
    assert "compact_threshold: 7 is impossible" in error
    assert "Cannot initialize" not in error


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no such file"),
        (b"not json", "line 1: not JSON"),
        (b'{"id": "a", "messages": []}', "transcript 0 has no messages"),
        (b'{"role": "system", "content": "Be brief."}', "has no user message"),
        (b"", "no transcript with index 0; there are 0"),
        (b"\xff\xff", "it is not UTF-8 text"),
    ],
)
def test_a_transcript_that_cannot_be_replayed_is_named(
    run: Run, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    file = tmp_path / "recorded.jsonl"
    if content is not None:
        file.write_bytes(content)
    assert expected in (error := error_of(run("--transcript", file)))
    assert "recorded.jsonl" in error


def test_a_missing_kernel_is_an_install_away(
    run: Run, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_context_testing.demo.session.find_spec", lambda name: None)
    assert "pip install amplifier-core" in error_of(run(plan(), "--prompt", "Hi."))


def test_help_loads_neither_kernel_nor_rich_nor_yaml() -> None:
    heavy = ("amplifier_core", "rich", "yaml")
    code = (
        "import sys\nfrom amplifier_context_cli.app import main\nmain(['--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
