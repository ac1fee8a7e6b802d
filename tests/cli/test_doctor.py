"""The command `doctor`: what is here, what is missing, what is in the way."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from amplifier_context_cli.app import main
from tests.cli.kept import Run


def findings(url: str, *options: str, code: int = 0) -> dict[str, dict[str, str]]:
    done = CliRunner().invoke(main, ["doctor", "--json", "--store", url, *options])
    assert done.exit_code == code, done.output
    return {one["what"]: one for one in map(json.loads, done.output.splitlines())}


def test_a_sound_installation_has_nothing_wrong(filled: str) -> None:
    found = findings(filled)
    assert {one["state"] for one in found.values()} <= {"ok", "note"}
    assert found["store"]["found"].endswith("2 sessions")
    assert "full text search" in found["search"]["found"]
    text = CliRunner().invoke(main, ["doctor", "--store", filled]).output
    assert all(name in text for name in ("python", "kernel", "packages", "module", "tokens", "modes"))


@pytest.mark.parametrize("journal", ["", "?journal=truncate"])
def test_files_that_others_can_read_are_named(filled: str, journal: str) -> None:
    path = Path(filled.partition(":")[2])
    if path.is_file():
        filled += journal
    path.chmod(0o755 if path.is_dir() else 0o644)
    file = next(path.glob("*/context-messages.jsonl")) if path.is_dir() else path
    file.chmod(0o644)
    found = findings(filled, code=1)
    assert found["modes"]["state"] == "wrong"
    assert file.name in found["modes"]["found"]
    assert findings(filled, "--fix")["modes"]["state"] == "ok"
    assert file.stat().st_mode & 0o777 == 0o600
    assert findings(filled)["modes"]["found"] == "only you can read its files"


def test_each_wrong_config_key_of_a_plan_is_named_with_the_nearest_right_one(run: Run, tmp_path: Path) -> None:
    plan, store = tmp_path / "plan.yaml", f"sqlite:{tmp_path / 'none.db'}"
    plan.write_text(
        "session:\n"
        "  orchestrator: loop-basic\n"
        f"  context: {{module: context-persistent, config: {{max_tokns: 9, compact_threshold: 3, store: '{store}'}}}}\n"
        "tools: [tool-other, {module: tool-context-recall, config: {max_result_token: 4}}]\n"
    )
    checked = ("doctor", "--json", "--store", f"jsonl:{tmp_path}", "--plan", str(plan))
    found = [
        one["found"] for one in map(json.loads, run(*checked, code=1).output.splitlines()) if one["what"] == "plan"
    ]
    assert [text.partition(" is impossible")[0].partition("; ")[0] for text in found] == [
        "context-persistent: compact_threshold: 3",
        "context-persistent: max_tokns: unknown key of context-persistent",
        "tool-context-recall: max_result_token: Extra inputs are not permitted",
    ]
    assert found[1].endswith("did you mean 'max_tokens'?")
    assert not (tmp_path / "none.db").exists()
    plan.write_text("session: {context: context-simple}\ncontext: {config: {max_tokens: 9000}}\n")
    assert '"context-simple knows each key of its config"' in run(*checked).output
    plan.write_text("session: {context: context-simple}\ncontext: {config: 9000}\n")
    assert "must be keys with values" in run(*checked, code=1).output
    for text in ("session: {context: context-other}", "- 1", "a: ]", "a: 2024-99-99", "a: !!timestamp x", "[" * 5_000):
        plan.write_text(text)
        assert str(plan) in run(*checked, code=1).output
    plan.write_text("providers: [{api_key: hidden-secret, }, ]]")
    assert "hidden-secret" not in run(*checked, code=1).output


def test_the_target_of_a_link_keeps_its_rights(template: Callable[[str], Path], tmp_path: Path) -> None:
    store = shutil.copytree(template("jsonl"), tmp_path / "sessions")
    store.chmod(0o755)
    target = tmp_path / "target"
    target.touch(0o644)
    (store / "one" / "link").symlink_to(target)
    assert "link" in findings(f"jsonl:{store}", "--fix", code=1)["modes"]["found"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_a_store_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database, and longer than a header of one would be" * 20)
    found = findings(f"sqlite:{tmp_path / 'notes.db'}", code=1)
    assert found["store"]["state"] == "wrong"


def test_a_sqlite_without_its_tokenizers_is_a_note(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        sqlite_version = "3.0"
        DatabaseError = sqlite3.DatabaseError

        def connect(self, *_: object) -> sqlite3.Connection:
            connection = sqlite3.connect(":memory:")
            connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
            return connection

    from amplifier_context_cli import doctor

    monkeypatch.setattr(doctor, "sqlite3", Without())
    assert "lacks FTS5 with porter and trigram" in findings(filled)["search"]["found"]
