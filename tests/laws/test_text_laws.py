"""Laws of clipping, naming and counting."""

import copy
import json
import math
import operator
import tempfile
from pathlib import Path
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import HeuristicTokenCounter, count_message_tokens, count_tokens
from amplifier_context_core.compaction.digest import TAG, single_line
from amplifier_context_core.compaction.identifiers import identifiers
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.parsing import copy_checked, copy_json, json_text, parse_message, text_of
from amplifier_context_core.messages.tokens import VocabularyTokenCounter
from amplifier_context_core.rendering.sendable import scrub
from amplifier_context_core.rendering.truncate import clip_text
from amplifier_context_testing import WordCounter
from tests.managers import feed
from tests.messages import block, user

from .histories import JSON, TEXTS, conversations, flat
from .managers import new_manager

LONG_TEXTS = st.builds(operator.mul, st.text(min_size=1, max_size=30), st.integers(1, 60)).map(str)
MARKS = st.sampled_from([None, "m1", "m123456"])


@given(LONG_TEXTS, st.integers(1, 400), st.integers(0, 400), MARKS)
@example(" " * 400 + "end", 20, 0, "m1")
def test_a_clipped_text_fits_says_something_if_the_text_does_and_is_not_clipped_again(
    text: str, size: int, more: int, mark: str | None
) -> None:
    clipped = clip_text(text, size, mark)
    assert len(clipped) <= size
    assert bool(clipped.strip()) == bool(text.strip())
    assert clipped is text or len(text) > size
    assert clip_text(clipped, size + more, mark) == clipped


@given(LONG_TEXTS.filter(lambda text: len(text) > 250), st.integers(100, 200))
def test_what_is_not_cut_is_the_beginning_and_the_end(text: str, size: int) -> None:
    head, _, rest = clip_text(text, size, "m1").partition("\n[... ")
    assert text.startswith(head)
    assert text.endswith(rest.rpartition(" ...]\n")[2])


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
@given(TEXTS, st.text(), st.floats(0.1, 100))
def test_the_heuristic_is_the_bytes_over_the_ratio_rounded_up(one: str, other: str, ratio: float) -> None:
    """Of two texts it is at most one above that of both."""
    counter = HeuristicTokenCounter(ratio)
    assert counter(one) == math.ceil(len(one.encode("utf-8", "surrogatepass")) / ratio)
    assert counter(one + other) <= counter(one) + counter(other) <= counter(one + other) + 1


@given(st.text(alphabet="ab \n", min_size=0, max_size=200), st.integers(1, 500))
@example("word ", 60_000)
@example("\n", 250_000)
def test_counting_in_pieces_leaves_no_character_out_and_counts_none_twice(text: str, times: int) -> None:
    seen: list[str] = []

    def count(text: str) -> int:
        seen.append(text)
        return len(text)

    whole = text * times
    assert VocabularyTokenCounter(count, "fake")(whole) == len(whole)
    assert "".join(seen) == whole
    assert max(map(len, seen), default=0) <= 40_000, "bpe-openai refuses a million characters, or 200,000 tokens"


@given(conversations())
def test_a_conversation_counts_as_the_sum_of_its_messages_each_with_its_framing(steps: list[Any]) -> None:
    """Metadata costs nothing, a text as much in a block as by itself, and counting changes nothing."""
    messages, words = flat(steps), WordCounter()
    before = copy.deepcopy(messages)
    assert count_tokens(messages) == sum(count_message_tokens(message) for message in messages)
    for message in messages:
        tokens = count_message_tokens(message)
        assert tokens >= 4
        assert tokens == count_message_tokens(message, per_message_overhead=0) + 4
        assert tokens == count_message_tokens({key: value for key, value in message.items() if key != "metadata"})
        if isinstance(message.get("content"), str) and not message.get("tool_calls"):
            blocks = {**message, "content": [block(message["content"])]}
            assert count_message_tokens(blocks, words) == count_message_tokens(message, words)
    assert messages == before


# -- copies -----------------------------------------------------------------------------------------------------------
@given(conversations())
def test_reading_a_message_once_more_reads_the_same(steps: list[Any]) -> None:
    for raw in flat(steps):
        message, info = parse_message(raw)
        assert message == raw
        assert parse_message(message) == (message, info)
        assert isinstance(text_of(message.get("content")), str)


# -- surrogates, which Python can hold and Unicode cannot: memory and stores keep the same -----------------------------
ODD_TEXTS = st.text(st.sampled_from("\ud83d\ude00\ud800\udbff\udc00\udfffa\0é漢😀\ufeff"), max_size=9)
ODD_VALUES = st.recursive(
    ODD_TEXTS | st.none() | st.booleans() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=8,
)
PAIR = "\ud83d\ude00"  # as two code units; "😀" is one


class Text(str):
    """A text of another class, such as a member of an enumeration."""


@given(JSON | ODD_VALUES)
@example({PAIR: PAIR, "😀": [PAIR]})
@example([Text(PAIR), "\ud83d" + PAIR, "\ude00\ud83d"])
def test_a_copied_value_is_what_any_reader_of_its_json_has(value: Any) -> None:
    copied = copy_checked(value)
    assert copied == copy_json(copied) == json.loads(json.dumps(value))
    assert repr(copied) == repr(json.loads(json.dumps(value)))
    assert copy_checked(copied) == copied
    assert orjson.loads(json_text(scrub({"v": copied}))) is not None


@given(st.lists(ODD_TEXTS, min_size=1, max_size=4), ODD_VALUES)
@example([PAIR, "\ud83d", "\ude00"], {PAIR: PAIR})
@example(["hello"], [{"a": {"b\udfff": [2**70, 0.1]}}])
async def test_memory_and_a_store_keep_the_same_texts_and_items(texts: list[str], value: Any) -> None:
    given = [user(text, metadata={"more": value}) for text in texts]
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:{Path(folder) / 'sessions.db'}", f"jsonl:{Path(folder) / 'sessions'}"]
        for url in ("memory:", *urls):
            manager = await feed(new_manager(url), given)
            await manager.queue.append(ContextItem(json.loads(json.dumps(value))))
            await manager.pool.add(ContextItem(json.loads(json.dumps(value)), "a value", "v"))
            await manager.get_messages_for_request()
            found.append(_contents(await manager.get_messages()))
            await manager.close()
        for url in urls:
            again = new_manager(url)
            found.append(_contents(await again.get_messages()))
            assert [repr(item.content) for item in (*again.queue, *again.pool)] == [
                repr(json.loads(json.dumps(value)))
            ] * 2
            await again.set_messages(given)  # as the host has them
            found.append(_contents(await again.get_messages()))
            await again.close()
    assert all(contents == found[0] for contents in found)


def _contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [(repr(message["content"]), repr(message["metadata"]["more"])) for message in messages]
