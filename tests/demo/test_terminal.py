"""Lines: wrapped, cut, drawn, and harmless whatever a tool printed."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from amplifier_context_core.cli.formatting import printable, truncate
from amplifier_context_core.cli.streams import prepare_streams
from amplifier_context_core.messages.parsing import Call
from amplifier_context_testing.demo.probe import Request
from amplifier_context_testing.demo.progress import ProgressPrinter, bar, calls_text, compaction_line
from amplifier_context_testing.demo.terminal import RichTerminal, open_terminal, wrapped


def plain(line: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in line)


def test_a_long_line_goes_on_indented_and_keeps_every_word() -> None:
    lines = wrapped([("one two ", "bold"), ("three four five", "")], 10, 2)
    assert [plain(line) for line in lines] == ["one two", "  three", "  four", "  five"]
    assert lines[0] == [("one two", "bold")]


def test_a_word_longer_than_the_screen_is_broken_not_lost() -> None:
    lines = [plain(line) for line in wrapped([("x" * 25, "")], 10, 4)]
    assert lines == ["x" * 10, "    xxxxxx", "    xxxxxx", "    xxx"]


@pytest.mark.parametrize("width", [1, 2, 7, 80])
@pytest.mark.parametrize("indent", [0, 3, 90])
def test_wrapping_ends_for_any_width(width: int, indent: int) -> None:
    text = "some words and  a gap, then " + "long" * 9
    assert "".join("".join(map(plain, wrapped([(text, "")], width, indent))).split()) == "".join(text.split())


def test_an_empty_line_is_a_line() -> None:
    assert wrapped([], 10, 3) == [[]]


def test_what_a_tool_printed_cannot_steer_the_terminal() -> None:
    assert printable("\x1b[2J\x07wiped\r\n") == " [2J wiped  "
    assert "\x1b" not in plain(wrapped([("a\x1b]0;title\x07b", "")], 40)[0])


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("short", 10, "short"), ("a  b\n c", 10, "a b c"), ("abcdefghij", 5, "abcd…"), ("x" * 99, 0, "…"), ("", 5, "")],
)
def test_a_text_is_cut_to_its_width(text: str, width: int, shown: str) -> None:
    assert truncate(text, width) == shown


@pytest.mark.parametrize(
    ("part", "whole", "drawn"), [(0, 8, "░░"), (1, 8, "▎░"), (8, 8, "██"), (99, 8, "██"), (3, 0, "░░")]
)
def test_a_bar_shows_the_share(part: int, whole: int, drawn: str) -> None:
    assert bar(part, whole, 2) == drawn


def test_calls_of_one_tool_are_grouped_with_what_they_are_about() -> None:
    calls = [
        Call("1", "read_file", {"lines": 3, "path": "a.py"}),
        Call("2", "read_file", '{"path": "deep/down/in/b.py"}'),
        Call("3", "Bash", {"timeout": 5}),
        Call("4", "Bash", "not json"),
        Call("5", "Grep", "[1]"),
    ]
    assert calls_text(calls) == "read_file a.py, …/in/b.py · Bash not json · Grep"


def test_a_compaction_of_a_context_that_says_less_has_a_line_too() -> None:
    assert plain(compaction_line({"before_tokens": 900, "after_tokens": 300})).strip() == "└ compacted 900 → 300 tokens"


def test_a_strategy_with_two_turns_is_named_once() -> None:
    report: dict[str, Any] = {
        "before_tokens": 9,
        "after_tokens": 4,
        "strategies": [{"name": "fold", "freed": 2}, {"name": "drop", "freed": 1}, {"name": "fold", "freed": 3}],
    }
    assert "freed by fold 5, drop 1" in plain(compaction_line(report))


def test_without_such_characters_in_the_encoding_plainer_ones_are_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(kept, encoding="ascii"))
    prepare_streams()
    with open_terminal(plain=True) as terminal:
        terminal.print([("█▌░ 9 → 3 · cut…", "bold")])
    assert kept.getvalue() == b"#=. 9 > 3 - cut~\n"


def test_no_line_is_on_the_screen_twice_when_the_next_request_begins() -> None:
    class Screen:
        """The lines that stay, and those at the bottom, looked at after every change."""

        width = 100

        def __init__(self) -> None:
            self.stay: list[str] = []
            self.bottom: list[str] = []

        def print(self, line: list[tuple[str, str]], indent: int = 0) -> None:
            self.stay.append(plain(line).strip())
            self.looked_at()

        def update(self, *lines: list[tuple[str, str]]) -> None:
            self.bottom = [plain(line).strip() for line in lines]
            self.looked_at()

        def stop_live(self) -> None:
            self.bottom = []

        def looked_at(self) -> None:
            numbers = [line.split()[0] for line in (*self.stay[-1:], *self.bottom) if line[:1].isdigit()]
            assert len(numbers) == len(set(numbers)), numbers

    screen = Screen()
    progress = ProgressPrinter(screen)
    for number in range(1, 4):
        request = Request(number, 100 * number, 1_000, 900, 50, [])
        progress.on_request(request)
        request.answered = True
        progress.on_response(request)
    progress.close([], 0)
    assert [line.split()[0] for line in screen.stay if line[:1].isdigit()] == ["1", "2", "3"]


def test_the_lines_at_the_bottom_are_redrawn_and_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("rich.console.Console", partial(Console, file=out, force_terminal=True, width=60))
    terminal = RichTerminal()
    terminal.update([("for now", "")], [("status", "dim")])
    terminal.print([("this stays", "bold")])
    terminal.stop_live()
    terminal.stop_live()
    last = out.getvalue().rsplit("status", 1)[1]
    assert "this stays" in out.getvalue()
    assert "\x1b[2K" in last  # the line was erased
    assert terminal.width == 60


def test_a_line_that_stays_is_printed_above_the_newest_lines_at_the_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("rich.console.Console", partial(Console, file=out, force_terminal=True, width=60))
    terminal = RichTerminal()
    terminal.update([("under way", "")], [("status", "")])
    terminal.update([("status", "")])
    before = out.tell()
    terminal.print([("done", "")])
    printed = out.getvalue()[before:]
    terminal.stop_live()
    assert "under way" not in printed
    assert "status" in printed.partition("done")[2]
