"""Invalid requests, and whose fault they are."""

from __future__ import annotations

from amplifier_context_testing.lab.validity import Faults, holds_human, newest_human

from .scripted import calls, result, says, user

ASKED = user("Please look at the file and tell me all that is wrong with it, thank you")
HISTORY = [ASKED, calls("read", {"path": "a"}), result("text"), says("Fine.")]


def test_a_valid_request_has_no_faults() -> None:
    assert Faults(HISTORY).of(HISTORY, 4) == ([], [])


def test_a_split_pair_is_the_managers_fault() -> None:
    broken, added = Faults(HISTORY).of([ASKED, result("text")], 4)
    assert broken == added != []


def test_a_fault_of_the_recording_is_no_fault_of_a_manager() -> None:
    history = [ASKED, calls("read", {"path": "a"}), user("stop")]
    broken, added = Faults(history).of(history, 3)
    assert broken
    assert added == []


def test_the_newest_human_message_is_found_whole_or_clipped() -> None:
    assert newest_human([*HISTORY, {**user("note"), "metadata": {"source": "hook"}}]) is ASKED
    assert holds_human(HISTORY, ASKED)
    assert holds_human([user(ASKED["content"][:60] + " [... cut]")], ASKED)
    assert not holds_human([user(ASKED["content"][:10] + " [... cut]")], ASKED)
    assert not holds_human([says(ASKED["content"])], ASKED)
