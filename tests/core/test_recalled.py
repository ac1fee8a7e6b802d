"""How much of a view the recall tool brought back."""

from __future__ import annotations

from amplifier_context_core.rendering.recalled import ONE_LINE, RecalledSize, recalled_size
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.transcript.recalled import RECALL_TOOL
from tests.messages import result, says


def asked(*ids: str) -> RenderedMessage:
    calls = [{"id": id, "tool": RECALL_TOOL, "arguments": {}} for id in ids]
    return RenderedMessage(says(tool_calls=calls), 30, 1)


def answered(id: str, tokens: int) -> RenderedMessage:
    return RenderedMessage(result(id), tokens, 2)


def test_a_recalled_text_counts_what_it_has_beyond_a_line() -> None:
    shown = [asked("a", "b"), answered("a", ONE_LINE + 500), answered("b", ONE_LINE + 1)]
    assert recalled_size(shown) == RecalledSize(2, 501)


def test_a_recalled_line_counts_as_no_more_than_it_is() -> None:
    assert recalled_size([asked("a"), answered("a", ONE_LINE - 6)]) == RecalledSize(1, 0)


def test_results_of_other_tools_were_not_recalled() -> None:
    other = RenderedMessage(says(tool_calls=[{"id": "a", "tool": "bash", "arguments": {}}]), 30, 1)
    assert recalled_size([other, answered("a", 900)]) == RecalledSize()
