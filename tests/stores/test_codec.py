"""What all stores share: the codec (any entry that is encoded and decoded is the same entry), and the checks before any
call.
"""

import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import Entry, InvalidMessage, StoreError
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.timestamps import timestamp_of
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.stores.codec import decode_entry, encode_extra, loads, message_json
from amplifier_context_testing.contract.samples import differing, entry
from tests.laws.histories import ANY_STEPS, flat

# Any text that JSON can hold: lone surrogates too, but no pair of them, which JSON reads as one character.
SURROGATES = st.characters(categories=["Cs"])
TEXTS = st.text(max_size=30) | st.lists(SURROGATES | st.characters(), max_size=6).map("".join).filter(
    lambda text: json.loads(json.dumps(text)) == text
)
NUMBERS = st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
STAMPS = st.sampled_from(["", "2026-02-03T04:05:06.789+00:00", "yesterday", "\ud83d \0\u2028"])
COUNTS, MAYBE = st.integers(0, 2**70), st.none() | TEXTS
USAGES = st.none() | st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS)
RESPONSES = st.none() | st.builds(Response, MAYBE, MAYBE, USAGES, MAYBE, MAYBE)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Generate any message that a history takes, with any values at its top, in its metadata and in its blocks."""
    if draw(st.booleans()):
        message: dict[str, Any] = dict(draw(st.sampled_from(flat(draw(st.lists(ANY_STEPS, min_size=1, max_size=2))))))
    else:
        message = {"role": draw(st.sampled_from(["system", "developer", "user", "assistant", "function"]))}
        blocks = st.dictionaries(TEXTS, ANYTHING, max_size=3).map(lambda more: {**more, "type": "text"})
        message["content"] = draw(TEXTS | st.none() | st.lists(blocks, max_size=3))
    own = {"role", "content", "metadata", "tool_calls", "tool_call_id"}
    message |= draw(st.dictionaries(TEXTS.filter(lambda key: key not in own), ANYTHING, max_size=3))
    if draw(st.booleans()):
        stamp = draw(st.sampled_from([{}, {"timestamp": draw(STAMPS)}, {"timestamp": draw(ANYTHING)}]))
        message["metadata"] = {**draw(st.dictionaries(TEXTS, ANYTHING, max_size=3)), **stamp}
    if draw(st.integers(0, 4)) == 0:
        message["timestamp"] = draw(STAMPS)
    return message


@st.composite
def any_entries(draw: st.DrawFn) -> Entry:
    made = entry(
        draw(st.integers(1, 2**62)),
        draw(messages()),
        session_id=draw(st.sampled_from(["s", "another", "読"])),
        turn=draw(st.integers(0, 2**40)),
        tokens=draw(st.integers(-1, 2**50)),
        response=draw(RESPONSES),
    )
    created = draw(st.just(timestamp_of(made.message) or "") | STAMPS)
    return made._replace(created=created, completed=draw(st.just(created) | STAMPS))


@given(any_entries())
def test_an_encoded_entry_decodes_to_the_same_entry_and_a_message_is_one_line_of_utf_8(given: Entry) -> None:
    line, extra = message_json(given.message), json.loads(json.dumps(encode_extra(given, "s")))
    for session_id, more in (("s", {}), ("fork", {}), ("fork", {"session_id": "s"})):  # or a fork names the parent
        own = json.loads(json.dumps(encode_extra(given, session_id))) if not more else {**more, **extra}
        again = decode_entry(session_id, given.seq, given.turn, given.tokens, line, own)
        assert not differing([again], [given])
        assert (message_json(again.message), encode_extra(again, "s")) == (line, encode_extra(given, "s"))
    assert not set(line) & set(b"\n\r\0")
    text = line.decode("utf-8")  # as a database takes it
    assert repr(loads(text)) == repr(loads(line)) == repr(given.message) == repr(json.loads(text))


DEEPEST = {"role": "user", "content": "x", "of": reduce(lambda inner, _: [inner], range(98), [])}


@pytest.mark.parametrize(
    "text",
    [
        *(f'{{"role": "user", "content": "x", "of": [{one}]}}' for one in ("1" * 19, "9" * 25, "-1e3", "1.5", "1e999")),
        *(f'{{"role": "user", "content": "{one}"}}' for one in (r"\ud83d\udca9", r"\ud83d", "1" * 30, "{[" * 200)),
        json.dumps(DEEPEST),
        json.dumps({**DEEPEST, "of": [DEEPEST["of"]]}),
        *('{"role": "user", "content": [{"text": "no type"}]}', '{"content": "no role"}', "[1]", '"text"', "NaN"),
        '{"role": "user", "content": "x", "of": NaN}',
    ],
)
def test_a_stored_message_is_decoded_as_parsing_its_json_checks_and_copies_it(text: str) -> None:
    try:
        read, info = parse_message(json.loads(text))
    except InvalidMessage:
        with pytest.raises(StoreError):
            decode_entry("s", 1, 0, 0, text)
    else:
        for data in (text, text.encode()):
            given = decode_entry("s", 1, 0, 0, data)
            assert repr(given.message) == repr(read)
            assert given == Entry.of(1, read, info, turn=0, tokens=0, session_id="s", created="")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"role": "user"',
        b'{"role": "nobody", "content": "x"}',
        b'{"role": "user", "content": "x", "n": 1e999}',
        b'{"role": "user", "content": "x", "n": ' + b"9" * 5_000 + b"}",
        b'{"role": "user", "content": "\xff\xfe"}',
        b'{"role": "user", "content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"role": "user", "content": "x"}{"role": "user", "content": "y"}',
    ],
)
def test_a_damaged_message_is_an_error_that_names_it_and_quotes_nothing(data: bytes) -> None:
    with pytest.raises(StoreError, match="m7 of session 's' is damaged") as caught:
        decode_entry("s", 7, 1, 1, data)
    assert len(str(caught.value)) < 100
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "extra",
    [
        {"session_id": 7, "created": None, "completed": [], "unknown": {}},
        {"response": "no"},
        {"response": {"usage": 7, "model": 8}},
        {"response": {"usage": {"input_tokens": "many"}}},
        {"response": {"usage": {"input_tokens": 1, "unknown": 2}, "unknown": 3}},
    ],
)
def test_an_ordinary_entry_has_no_extra_and_an_odd_one_is_read_as_far_as_possible(extra: dict[str, Any]) -> None:
    assert encode_extra(entry(7), "s") == {}
    read = decode_entry("s", 7, 1, 1, message_json(entry(7).message), extra)
    assert (read.message, read.session_id, read.created) == (entry(7).message, "s", entry(7).created)
