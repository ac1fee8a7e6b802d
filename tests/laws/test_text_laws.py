"""Laws of clipping, naming and counting."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import HeuristicTokenCounter, count_message_tokens, count_tokens
from amplifier_context_core.compaction.digest import TAG, single_line
from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.messages.parsing import copy_checked, copy_json, json_text, parse_message, text_of
from amplifier_context_core.messages.tokens import VocabularyTokenCounter
from amplifier_context_core.rendering.sendable import scrub
from amplifier_context_core.rendering.truncate import clip_text
from amplifier_context_testing import WordCounter

from .histories import JSON, TEXTS, conversations, flat

LONG_TEXTS = st.builds(operator.mul, st.text(min_size=1, max_size=30), st.integers(1, 60)).map(str)
MARKS = st.sampled_from([None, "m1", "m123456"])


@given(LONG_TEXTS, st.integers(1, 400), MARKS)
@example(" " * 400 + "end", 20, "m1")
def test_a_clipped_text_fits_and_says_something_if_the_text_does(text: str, size: int, mark: str | None) -> None:
    clipped = clip_text(text, size, mark)
    assert len(clipped) <= size
    assert bool(clipped.strip()) == bool(text.strip())
    if len(text) <= size:
        assert clipped is text


@given(LONG_TEXTS, st.integers(1, 400), st.integers(0, 400), MARKS)
def test_clipping_again_to_the_same_size_or_more_changes_nothing(
    text: str, size: int, more: int, mark: str | None
) -> None:
    once = clip_text(text, size, mark)
    assert clip_text(once, size + more, mark) == once


@given(LONG_TEXTS.filter(lambda text: len(text) > 250), st.integers(100, 200))
def test_what_is_not_cut_is_the_beginning_and_the_end(text: str, size: int) -> None:
    clipped = clip_text(text, size, "m1")
    head, _, rest = clipped.partition("\n[... ")
    tail = rest.rpartition(" ...]\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)


@given(st.text(max_size=300), st.integers(0, 20))
def test_identifiers_are_in_the_text_and_listed_once(text: str, limit: int) -> None:
    found = identifiers(text, limit)
    assert len(found) == len(set(found)) <= limit
    assert all(name in text and 5 <= len(name) <= 120 for name in found)
    assert found == identifiers(text)[:limit]


@given(st.text(max_size=200))
@example(f"</{TAG}>\n<{TAG}>")
def test_one_line_is_one_line_and_holds_no_tag(text: str) -> None:
    line = single_line(f"{text}</{TAG}>{text}")
    assert len(line.splitlines()) == 1
    assert f"<{TAG}" not in line
    assert f"</{TAG}" not in line
    assert single_line(line) == line


# -- counting ---------------------------------------------------------------------------------------------------------


@given(TEXTS, st.floats(0.1, 100))
def test_the_heuristic_is_the_bytes_over_the_ratio_rounded_up(text: str, ratio: float) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert HeuristicTokenCounter(ratio)(text) == math.ceil(size / ratio)


@given(st.text(), st.text())
def test_the_heuristic_of_two_texts_is_at_most_one_above_that_of_both(one: str, other: str) -> None:
    counter = HeuristicTokenCounter()
    both = counter(one + other)
    assert both <= counter(one) + counter(other) <= both + 1


@given(st.text(alphabet="ab \n", min_size=0, max_size=200), st.integers(1, 500))
def test_counting_in_pieces_leaves_no_character_out_and_counts_none_twice(text: str, times: int) -> None:
    seen: list[str] = []

    def count(text: str) -> int:
        seen.append(text)
        return len(text)

    whole = text * times
    assert VocabularyTokenCounter(count, "fake")(whole) == len(whole)
    assert "".join(seen) == whole


@given(conversations())
def test_a_conversation_counts_as_the_sum_of_its_messages(steps: list[Any]) -> None:
    messages = flat(steps)
    assert count_tokens(messages) == sum(count_message_tokens(message) for message in messages)


@given(conversations())
def test_every_message_costs_at_least_its_framing_and_no_message_is_changed_by_counting(steps: list[Any]) -> None:
    for message in flat(steps):
        before = copy.deepcopy(message)
        assert count_message_tokens(message) >= 4
        assert message == before
        assert count_message_tokens(message, per_message_overhead=0) == count_message_tokens(message) - 4


@given(conversations())
def test_metadata_costs_nothing(steps: list[Any]) -> None:
    for message in flat(steps):
        bare = {key: value for key, value in message.items() if key != "metadata"}
        assert count_message_tokens(bare) == count_message_tokens(message)


@given(conversations())
def test_a_text_counts_as_much_in_a_block_as_by_itself(steps: list[Any]) -> None:
    counter = WordCounter()
    for message in flat(steps):
        if isinstance(message.get("content"), str) and not message.get("tool_calls"):
            blocks = {**message, "content": [{"type": "text", "text": message["content"]}]}
            assert count_message_tokens(blocks, counter) == count_message_tokens(message, counter)


# -- copies -----------------------------------------------------------------------------------------------------------


@given(JSON)
def test_a_checked_copy_is_equal_and_its_text_is_json(value: Any) -> None:
    copied = copy_checked(value)
    assert copied == value
    assert copy_json(copied) == value
    assert orjson.loads(json_text(scrub({"v": copied}))) is not None


@given(conversations())
def test_reading_a_message_once_more_reads_the_same(steps: list[Any]) -> None:
    for raw in flat(steps):
        message, info = parse_message(raw)
        assert message == raw
        assert parse_message(message) == (message, info)
        assert isinstance(text_of(message.get("content")), str)
