"""What hosts and hooks put into a conversation: it is not a person's, and newer texts replace older ones."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.reminders import is_of_a_program, lineages_of

KEPT = {"ephemeral": True, "persisted": True}


def reminder(source: str = "", text: str = "three todos") -> str:
    return (
        f'<system-reminder source="{source}">{text}</system-reminder>'
        if source
        else (f"<system-reminder>{text}</system-reminder>")
    )


def envelope(*sources: str) -> str:
    inner = "\n".join(reminder(source) for source in sources)
    return f"<system-reminders>\nFrom hooks, not from a person.\n{inner}\n</system-reminders>"


@pytest.mark.parametrize(("between", "found"), [(880, "reminder a"), (920, "reminder")])
def test_a_source_is_looked_for_near_the_beginning_of_a_tag(between: int, found: str) -> None:
    text = f'<system-reminder {"x" * between} source="a">b</system-reminder>'
    assert lineages_of("user", KEPT, text) == {found}


@pytest.mark.parametrize(
    ("role", "metadata", "text", "lineages"),
    [
        ("user", KEPT, envelope("todo", "status"), {"reminder todo", "reminder status"}),
        ("user", KEPT, reminder(), {"reminder"}),
        ("user", KEPT, "no reminder at all", set()),
        ("user", {"ephemeral": True}, reminder("todo"), set()),
        ("user", {"source": "hook", "hook_name": "lint"}, "x", {"hook lint"}),
        ("user", {"hook_name": "lint"}, "x", set()),
        ("system", {"hook_name": "lint"}, "x", {"hook lint"}),
        ("system", {"hook_name": "unknown"}, "x", set()),
        ("assistant", {"hook_name": "lint", "source": "hook"}, "x", set()),
    ],
)
def test_a_newer_text_with_the_same_sources_replaces_a_reminder(
    role: str, metadata: dict[str, Any], text: str, lineages: set[str]
) -> None:
    assert lineages_of(role, metadata, text) == lineages


@pytest.mark.parametrize(
    ("text", "is_of_one"),
    [
        ("<task-notification>done</task-notification>\n<bash-stdout></bash-stdout>", True),
        ("<task-notification>done</task-notification> Look at it.", False),
        ("[Request interrupted by user for tool use]", True),
        ("[Request interrupted by user] Stop.", False),
        ("This session is being continued from a previous conversation that ran out of context. It was on a.py.", True),
        ("Is this session being continued from a previous conversation that ran out of context.", False),
    ],
)
def test_what_a_host_writes_in_the_name_of_its_user_is_of_a_program(text: str, is_of_one: bool) -> None:
    assert is_of_a_program(text) == is_of_one
