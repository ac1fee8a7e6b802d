"""Strategies that keep a window of a list: TrimRounds, FitContextWindow, KeepImportant."""

from __future__ import annotations

import pytest

from amplifier_context_core import FitContextWindow, KeepImportant, TrimRounds
from amplifier_context_testing import WordCounter
from tests.core.lists import PINNED, score, talk, words
from tests.messages import says, system, user


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, ["last"]), (3, ["c4", "c5", "last"]), (7, None), (99, None)])
def test_the_newest_tool_rounds_are_kept_and_all_that_is_no_tool_round(keep: int, left: list[str] | None) -> None:
    messages = talk()
    done = TrimRounds(keep).compact(messages)
    if left is None:
        assert done is messages
    else:
        assert [m["tool_calls"][0]["id"] for m in done if m.get("tool_calls")] == left
        assert [m for m in done if not m.get("tool_calls") and m["role"] != "tool"] == [
            m for m in messages if not m.get("tool_calls") and m["role"] != "tool"
        ]


def test_media_is_counted_as_configured() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    messages = [words(6), user([sound]), says("a b c d e f"), words(6)]
    assert FitContextWindow(100, WordCounter(), tokens_per_media=60).compact(messages) is messages
    assert FitContextWindow(100, WordCounter(), tokens_per_media=90).compact(messages) == [
        messages[0],
        *messages[2:],
    ]


@pytest.mark.parametrize(
    ("settings", "name"), [((0, {}), "max_tokens"), ((10, {"reserve_tokens": -1}), "reserve_tokens")]
)
def test_an_impossible_window_is_refused(settings: tuple[int, dict[str, int]], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        FitContextWindow(settings[0], **settings[1])


def test_keeping_none_leaves_what_must_stay() -> None:
    messages = [system("s"), user("task"), says("a"), user("b", metadata=PINNED)]
    assert KeepImportant(score, keep=0).compact(messages) == [messages[0], messages[1], messages[3]]
