"""What calls repeat of the history, what a view holds of it, and what reading again costs."""

from __future__ import annotations

from typing import Any

from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.lab.request import Request
from amplifier_context_testing.lab.shares import Share
from amplifier_context_testing.lab.working_memory import WorkingMemory, lines, old_texts

from .scripted import calls, chapter, result, says, scale, user

ONE = "return the_first_value(of, all)"
TWO = "return the_second_value(of, all)"
OWN = "a line that was never seen before"
READ = [user("fix it"), calls("Read", {"file": "a.py"}), result(f"     1→{ONE}\n     2→    {TWO}\n")]


def edit(*texts: str) -> Message:
    return calls("Edit", {"file": "a.py", "old_string": "\n".join(texts), "new_string": OWN}, "c2")


def kept(history: list[Message], answer: Message, view: list[Message]) -> tuple[Share, Share, float]:
    weigh = scale()
    memory = WorkingMemory([*history, answer], weigh)
    return memory.kept(len(history), Request.of(view, weigh))


def test_a_line_has_24_characters_without_its_number_and_its_white_space() -> None:
    assert list(lines("     7→a line of 24 characters.\n8\tb line of 24 characters.\n9-c line of 24 characters.")) == [
        "a line of 24 characters.",
        "b line of 24 characters.",
        "c line of 24 characters.",
    ]
    assert list(lines("     7→a line of 23 characters")) == []
    assert list(lines("\ta  line   of 24 characters. ")) == ["a line of 24 characters."]


def test_old_texts_are_known_by_every_hosts_name_and_in_lists_of_edits() -> None:
    names = ("old_string", "old_str", "old_text", "oldText")
    assert [list(old_texts({name: "x", "new_string": "y"})) for name in names] == [["x"]] * 4
    edits: Any = {"path": "p", "edits": [{"oldText": "x", "newText": "y"}, {"old_string": "z"}]}
    assert list(old_texts(edits)) == ["x", "z"]


def test_only_lines_of_an_earlier_message_are_needed() -> None:
    found, edits, price = kept(READ, edit(ONE, OWN), [*READ])
    assert found == Share(1, 1)  # OWN is in the old text and in the new one, and nowhere else
    assert edits == Share(1, 1)
    assert price == 0
    assert kept(READ, edit(OWN), [*READ]) == (Share(), Share(), 0)


def test_a_line_that_is_written_twice_is_needed_twice() -> None:
    twice = calls("Write", {"file": "b.py", "content": f"{ONE}\n{ONE}"})
    assert kept(READ, twice, [*READ])[0] == Share(2, 2)
    assert kept(READ, twice, [user("fix it")])[0] == Share(0, 2)


def test_an_edit_is_whole_if_all_its_lines_are_in_the_view() -> None:
    view = [user("fix it"), chapter(f"Read a.py:\n{ONE}")]
    found, edits, price = kept(READ, edit(ONE, TWO), view)
    assert (found, edits) == (Share(1, 2), Share(0, 1))
    weigh = scale()
    assert price == 0.1 * sum(map(weigh.tokens, view)) + 1.25 * weigh.tokens(READ[2]) + 300


def test_what_is_read_again_is_the_newest_message_that_holds_a_missing_line() -> None:
    history = [*READ, says(f"It is here:\n{ONE}\nand so on and so forth")]
    weigh = scale()
    _, _, price = kept(history, edit(ONE, TWO), [])
    assert price == 1.25 * weigh.tokens(history[3]) + 300


def test_a_line_within_a_longer_one_is_not_held() -> None:
    assert kept(READ, edit(ONE), [chapter(f"m3 Read: {ONE}")])[1] == Share(0, 1)
