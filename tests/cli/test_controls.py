"""No text of a session controls the terminal that a command prints it to, or the order in which it reads."""

import json
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing.replay.answer_policies import Policy, in_order
from tests.cli.kept import Message, in_session, run

HIDDEN = "\x00\x07\x1b[2J\r\x7f\x85\x9b31m\u2028\u202e\u2066\u200b\u2060\ufeff\U000e0041"
PLAIN = "שָׁלוֹם \u200fעולם\u200e، می\u200cخواهم 👩\u200d👩\u200d👧 日本\u3000語"  # noqa: RUF001 - they are meant
TEXT = f"evil{HIDDEN} {PLAIN}"
ORDERING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def hidden(text: str) -> set[str]:
    """The characters of a text that no command may print, by Unicode's own data and a list of invisible ones."""
    return {
        char
        for char in text
        if (char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"))
        or unicodedata.bidirectional(char) in ORDERING
        or char in "\u180e\u200b\u2060\ufeff"
        or 0xE0000 <= ord(char) <= 0xE007F
    }


def messages() -> list[Message]:
    made: list[Message] = [{"role": "user", "content": TEXT, "metadata": {"source": TEXT, "timestamp": TEXT}}]
    answered = {"model": TEXT, "usage": {"input_tokens": 9, "output_tokens": 1}}
    for number in range(20):
        call = {"id": f"c{number}{HIDDEN}", "name": f"evil{HIDDEN}", "arguments": {f"path{HIDDEN}": TEXT}}
        made += [
            {"role": "assistant", "content": f"{number} {TEXT}", "tool_calls": [call], "metadata": answered},
            {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": f"{TEXT}\n" * 30},
            {"role": "user", "content": f"Never touch {TEXT} {number}.", "metadata": {"hook_name": TEXT}},
        ]
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one compacted session, a part of which is in its archive."""

    async def fill(manager: ContextManager) -> None:
        for message in messages():
            await manager.add_message(message)
            await manager.get_messages_for_request()
        await manager.set_messages((await manager.get_messages())[:-1])
        assert (await manager.compact())["compacted"]

    file = tmp_path_factory.mktemp("made") / "sessions.db"
    in_session(f"sqlite:{file}", fill, token_counter="heuristic", max_tokens=4_000)
    return file


@pytest.fixture
def url(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", f"sqlite:{shutil.copy(made, tmp_path)}")


COMMANDS = """
    sessions, show one, show one --full, show one --full --archived, show one --json, view one, view one --chapter m4,
    explain one, context one, pins one, pin one m1, rewind one m3 --yes, prune --keep 0 --dry-run, doctor, verify,
    search --all evil, search one evil, undo one --yes, forget one m2 --yes,
    export one --format markdown, export one --format atif, export one --format messages
"""


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("command", re.split(r",\s+", COMMANDS.strip()))
def test_no_command_prints_a_character_that_controls_the_terminal(command: str) -> None:
    shown = run(*command.split()).output
    assert shown.strip()
    assert hidden(shown) == set()


def hostile_answers(config: dict[str, Any]) -> Policy:
    """Return the script of a run: calls, then an answer to each prompt."""
    calls = [call for message in messages()[:19] for call in message.get("tool_calls", ())]
    return in_order([*({"text": TEXT, "calls": [{"tool": call["name"], **call}]} for call in calls), TEXT, TEXT])


@pytest.mark.kernel
def test_no_session_that_is_run_prints_one(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    provider = {"module": "provider-replay", "config": {"script": f"{__name__}:hostile_answers"}}
    loop = {"orchestrator": "loop-replay", "context": "context-simple"}
    plan.write_text(json.dumps({"session": loop, "providers": [provider]}))
    done = run("run", str(plan), "--budget", "4000", "--prompt", TEXT, "--prompt", TEXT)
    assert hidden(done.output) == set()


@pytest.mark.usefixtures("url")
def test_words_in_other_scripts_and_emoji_are_printed_as_they_are_and_json_is_the_text_itself() -> None:
    assert PLAIN in run("show", "one", "--full").output
    assert json.loads(re.split(r"\n(?={)", run("show", "one", "--json").output)[0])["content"] == TEXT
