"""The command `doctor`: what is here, what is missing, what is in the way."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.kept import run


def findings(*options: str, at: str = "", code: int = 0) -> dict[str, dict[str, str]]:
    lines = run("doctor", "--json", *options, at=at, code=code).output.splitlines()
    return {one["what"]: one for one in map(json.loads, lines)}


@pytest.mark.parametrize("journal", ["", "?journal=truncate"])
def test_files_that_others_can_read_are_named(filled: str, journal: str) -> None:
    path = Path(filled.partition(":")[2])
    at = filled + (journal if path.is_file() else "")
    path.chmod(0o755 if path.is_dir() else 0o644)
    file = next(path.glob("*/context-messages.jsonl")) if path.is_dir() else path
    file.chmod(0o644)
    found = findings(at=at, code=1)
    assert found["modes"]["state"] == "wrong"
    assert file.name in found["modes"]["found"]
    assert findings("--fix", at=at)["modes"]["state"] == "ok"
    assert file.stat().st_mode & 0o777 == 0o600
    found = findings(at=at)
    assert found["modes"]["found"] == "only you can read its files"
    assert {one["state"] for one in found.values()} <= {"ok", "note"}
    assert found["store"]["found"].endswith("2 sessions")


def test_the_target_of_a_link_keeps_its_rights(template: Callable[[str], Path], tmp_path: Path) -> None:
    store = shutil.copytree(template("jsonl"), tmp_path / "sessions")
    store.chmod(0o755)
    target = tmp_path / "target"
    target.touch(0o644)
    (store / "one" / "link").symlink_to(target)
    assert "link" in findings("--fix", at=f"jsonl:{store}", code=1)["modes"]["found"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_each_wrong_config_key_of_a_plan_is_named_with_the_nearest_right_one(tmp_path: Path) -> None:
    plan, store = tmp_path / "plan.yaml", f"sqlite:{tmp_path / 'none.db'}"

    def checked(text: str, code: int) -> str:
        plan.write_text(text)
        return run("doctor", "--json", "--plan", str(plan), at=f"jsonl:{tmp_path}", code=code).output

    lines = checked(
        "session:\n"
        "  orchestrator: loop-basic\n"
        f"  context: {{module: context-persistent, config: {{max_tokns: 9, compact_threshold: 3, store: '{store}'}}}}\n"
        "tools: [tool-other, {module: tool-context-recall, config: {max_result_token: 4}}]\n",
        1,
    ).splitlines()
    found = [one["found"] for one in map(json.loads, lines) if one["what"] == "plan"]
    for text, key in zip(found, ("compact_threshold", "max_tokns", "max_result_token"), strict=True):
        assert f": {key}: " in text
    assert found[1].endswith("did you mean 'max_tokens'?")
    assert not (tmp_path / "none.db").exists()
    right = "session: {context: context-simple}\ncontext: {config: {max_tokens: 9000}}\n"
    assert '"context-simple knows each key of its config"' in checked(right, 0)
    assert "must be keys with values" in checked(right.replace("{max_tokens: 9000}", "9000"), 1)
    for text in ("session: {context: context-other}", "- 1", "a: ]", "a: 2024-99-99", "a: !!timestamp x", "[" * 5_000):
        assert str(plan) in checked(text, 1)
    assert "hidden-secret" not in checked("providers: [{api_key: hidden-secret, }, ]]", 1)


def test_a_store_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database, and longer than a header of one would be" * 20)
    assert findings(at=f"sqlite:{tmp_path / 'notes.db'}", code=1)["store"]["state"] == "wrong"
