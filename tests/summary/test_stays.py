"""What stays in view once newer rounds are folded: the prompt asks for it under headings whose lines stay."""

from __future__ import annotations

import re

import pytest
from amplifier_core import ChatRequest

from tests.messages import Message, rounds, text
from tests.summary.scripted import SESSION, Provider, drive, summary_manager

pytestmark = pytest.mark.kernel
QUESTION = "Asks why the parser is slow."
FAULT = "Of the review: the cache is never emptied."
PROPOSAL = "Proposed: split the module."
TASK = "Still to be measured: the lexer."
STEP = "Next: measure the lexer."


def place(prompt: str, word: str) -> tuple[str, str]:
    """The heading under which a prompt asks for something, and the word that such a line begins with."""
    headings = re.findall(r"^## (\w+)\n(.*?)(?=\n\n|\Z)", prompt, re.M | re.S)
    named = [(heading, body) for heading, body in headings if word in body]
    assert len(named) == 1, f"the prompt must ask for each {word} under one heading"
    heading, body = named[0]
    item = next((item for item in body.split("\n- ") if word in item), "")
    return heading, f"{found[1]} " if (found := re.match(r"`(\w+:)`", item)) else ""


def obedient(request: ChatRequest, number: int) -> str:
    """A model that writes each line where the prompt asks for it."""
    prompt, asked = (str(message.content) for message in request.messages[:2])
    mark = re.findall(r"^(m\d+) result", asked, re.M)[-1]
    lines = {"question": f"{QUESTION} (m1)", "review": f"{FAULT} ({mark})", "roposals": f"{PROPOSAL} ({mark})"}
    placed = [(*place(prompt, word), line) for word, line in lines.items()]
    placed += [("Work", "Open: ", TASK), ("Work", "", STEP)]
    return "\n".join(f"## {heading}\n- {first}{line}" for heading, first, line in placed)


def missing(view: list[Message], *lines: str) -> list[str]:
    """Of some lines those that a view does not show."""
    return [line for line in lines if line not in text(view)]


async def test_questions_and_findings_of_a_text_stay_in_view_but_what_was_open_does_not() -> None:
    provider = Provider(obedient)
    manager = summary_manager(provider, summary_background=False, summarize_at=1, max_summary_calls=1)
    (*_, view) = await drive(manager, SESSION[:41])
    assert missing(view, QUESTION, FAULT, PROPOSAL, TASK, STEP) == []
    (*_, view) = await drive(manager, rounds(24, start=100, output=900))
    assert manager.compactor.compactions >= 3
    assert len(provider.requests) == 1
    assert missing(view, QUESTION, FAULT, PROPOSAL, TASK, STEP) == [TASK, STEP]
    await manager.close()
