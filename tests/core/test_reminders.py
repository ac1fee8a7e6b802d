"""What hosts and hooks put into a conversation: it is not a person's, and newer texts replace older ones."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.parsing import is_human
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


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (reminder(), False),
        (reminder("todo"), False),
        (f" {reminder('todo')}\n{reminder('status')} ", False),
        (envelope("todo", "status"), False),
        (f"{envelope('todo')}\n{reminder()}", False),
        (f"{envelope('todo')}\nFix the loader.", True),
        (f"Fix the loader.\n{reminder()}", True),
        ("<system-reminder>never closed", True),
        ("<system-reminders>closed as one</system-reminder>", True),
        ("<system-reminderlike>x</system-reminderlike>", True),
        ("see <system-reminder> here", True),
        ("<task-notification>\n<status>done</status>\n</task-notification>", False),
        ("<bash-stdout>ok</bash-stdout><bash-stderr></bash-stderr>", False),
        ("<local-command-caveat>ran by hand</local-command-caveat>\n<bash-stdout>ok</bash-stdout>", False),
        (f"<local-command-stdout>compacted</local-command-stdout>\n{reminder()}", False),
        ("<task-notification>done</task-notification> Go on with the loader.", True),
        ("<task-notification>never closed", True),
        ("<bash-input>git fetch</bash-input>", True),
        ("<command-name>/review</command-name>\n<command-args>this branch</command-args>", True),
        ("[Request interrupted by user]", False),
        (" [Request interrupted by user for tool use]\n", False),
        ("[Request interrupted by user] Use the other file.", True),
        ("Hi.", True),
    ],
)
def test_a_text_is_of_a_program_or_says_more(text: str, more: bool) -> None:
    assert is_of_a_program(text) is not more
    assert is_human({"role": "user", "content": text}) is more
    assert is_human({"role": "user", "content": [{"type": "text", "text": text}]}) is more


class Scanned(str):
    """A text that counts the characters that were searched."""

    count = 0

    def find(self, what: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        end = len(self) if end is None else min(end, len(self))
        found = super().find(what, start, end)
        self.count += (found + len(what) if found >= 0 else end) - start
        return found


@pytest.mark.parametrize(
    "piece", ["<system-reminder>", "<system-reminder ", "<system-reminders>", "<system-reminder>a</"]
)
def test_each_part_of_a_hostile_text_is_searched_a_few_times(piece: str) -> None:
    many = piece * 5_000
    for text in map(Scanned, (many, f"{reminder()}{many}", f"<system-reminders>{many}</system-reminders>")):
        lineages_of("user", KEPT, text)
        assert 0 < text.count <= 3 * len(text)


@pytest.mark.parametrize(("between", "found"), [(880, "reminder a"), (920, "reminder")])
def test_a_source_is_looked_for_near_the_beginning_of_a_tag(between: int, found: str) -> None:
    text = f'<system-reminder {"x" * between} source="a">b</system-reminder>'
    assert lineages_of("user", KEPT, text) == {found}


@pytest.mark.parametrize(
    ("metadata", "human"),
    [
        ({"amplifier_input": {"version": 1, "kind": "service", "id": "job-7"}}, False),
        ({"amplifier_input": {"version": 1, "kind": "person"}}, True),
        ({"amplifier_input": "damaged"}, True),
        ({"amplifier_public_reference_only": True}, False),
        ({"amplifier_public_message": {"version": 1, "blocks": ["as it was typed"]}}, True),
        (KEPT, False),
        ({"persisted": True}, True),
    ],
)
def test_metadata_say_whether_a_person_wrote_it(metadata: dict[str, Any], human: bool) -> None:
    assert is_human({"role": "user", "content": "Ship it.", "metadata": metadata}) is human


@pytest.mark.parametrize(
    ("role", "metadata", "text", "lineages"),
    [
        ("user", KEPT, envelope("todo", "status"), {"reminder todo", "reminder status"}),
        ("user", KEPT, reminder("todo"), {"reminder todo"}),
        ("user", KEPT, reminder(), {"reminder"}),
        ("user", KEPT, "no reminder at all", set()),
        ("user", {"ephemeral": True}, reminder("todo"), set()),
        ("user", {}, reminder("todo"), set()),
        ("user", {"source": "hook", "hook_name": "lint"}, "x", {"hook lint"}),
        ("user", {"hook_name": "lint"}, "x", set()),
        ("system", {"hook_name": "lint"}, "x", {"hook lint"}),
        ("system", {"hook_name": "unknown"}, "x", set()),
        ("system", {}, "x", set()),
        ("assistant", {"hook_name": "lint", "source": "hook"}, "x", set()),
    ],
)
def test_a_newer_text_with_the_same_sources_replaces_a_reminder(
    role: str, metadata: dict[str, Any], text: str, lineages: set[str]
) -> None:
    assert lineages_of(role, metadata, text) == lineages
