"""Chats joined: one conversation, in which questions still point at their evidence."""

from __future__ import annotations

from pathlib import Path

import orjson
from click.testing import CliRunner

from amplifier_context_testing.lab.joined_chats import joined, main
from amplifier_context_testing.lab.sessions import Question, Session
from tests.messages import says, system, user


def chat(name: str) -> Session:
    evidence = f"I live in {name}."
    messages = [system(), user(evidence), says("I see."), user("A note."), says("Bye.")]
    return Session(name, "chats", messages, (), (Question("Where?", (evidence,), (), (1,)),), frozenset({3}))


def test_questions_and_host_messages_point_at_their_messages() -> None:
    whole = joined([chat("Lisbon"), chat("Quito")], "both")
    assert [message["role"] for message in whole.messages] == ["user", "assistant"] * 4
    assert [whole.messages[at]["content"] for one in whole.questions for at in one.indices] == [
        "I live in Lisbon.",
        "I live in Quito.",
    ]
    assert {whole.messages[at]["content"] for at in whole.host} == {"A note."}


def test_the_command_prints_both_halves_at_each_share(tmp_path: Path) -> None:
    lines = [
        orjson.dumps(
            {"id": f"chat {number}", "messages": [user(f"Fact {number} of many. " * 9), says("Thank you. " * 9)]}
        )
        for number in range(12)
    ]
    file = tmp_path / "chats.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    done = CliRunner().invoke(
        main, [str(file), "--fraction", "0.5", "--fraction", "0.3", "--orders", "2"], catch_exceptions=False
    )
    rows = [line.split(" | ")[:3] for line in done.output.splitlines()[2:]]
    managers = ("context-simple", "newest-checkpointed")
    assert rows == [
        [f"| {h}", name, size] for h in ("choose", "report") for size in ("50%", "30%") for name in managers
    ]
