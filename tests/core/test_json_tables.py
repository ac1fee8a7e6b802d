"""Tables: keys are written once, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from amplifier_context_core.rendering.json_tables import json_as_table, to_compact_text

FLIGHTS = [
    {"flight_number": f"HAT{n:03d}", "from": "SFO", "seats": {"economy": n, "business": 2 * n}, "stops": []}
    for n in range(1, 9)
]


def table(value: object) -> str:
    shown = json_as_table(json.dumps(value))
    assert shown is not None
    return shown


def test_records_say_their_keys_once_and_take_a_line_each() -> None:
    lines = table(FLIGHTS).splitlines()
    assert lines[0] == "(flight_number,from,seats: (economy,business),stops):"
    assert lines[1] == "[(HAT001,SFO,(1,2),[])"
    assert len(lines) == 9


def test_records_in_lists_of_lists_share_one_head() -> None:
    shown = table([FLIGHTS[:2], FLIGHTS[2:4], FLIGHTS[4:6]])
    assert shown.count("flight_number") == 1


def test_records_of_different_keys_say_them_themselves() -> None:
    shown = table([{"code": f"A{n}", "size" if n % 2 else "weight": n} for n in range(20)])
    assert shown.startswith("[{code: A0, weight: 0}, {code: A1, size: 1}")


def test_a_list_that_is_empty_in_one_record_only_is_shown_in_each() -> None:
    shown = table([{"code": "A", "bags": []}, {"code": "B", "bags": [{"kg": 7}]}] * 8)
    assert "(B,[{kg: 7}])" in shown


def test_a_record_keeps_its_keys() -> None:
    shown = table({"reservation_id": "1N99U6", "flights": FLIGHTS, "insurance": None, "paid": True})
    assert shown.startswith("{reservation_id: 1N99U6, flights: (flight_number,")
    assert shown.endswith("], insurance: null, paid: true}")


@pytest.mark.parametrize("text", ["92164", "-5", "1e5", "true", "null", "a, b", "(a)", " a", "", "two\nlines", '"'])
def test_a_text_that_could_be_read_otherwise_keeps_its_quotes(text: str) -> None:
    assert f"({json.dumps(text)},1)" in table([{"said": text, "by": 1}] * 20)


@pytest.mark.parametrize("text", ["2024-05-19", "17:00:00", "a@example.com", "San Diego", "src/app.py", "Zürich"])
def test_a_plain_text_needs_none(text: str) -> None:
    assert f"({text},1)" in table([{"said": text, "by": 1}] * 20)


def test_numbers_stay_as_they_were_spelled() -> None:
    record = '{"price": 1.10, "large": 123456789012345678901234567890, "small": 1e-7}'
    shown = json_as_table(f"[{', '.join([record] * 8)}]")
    assert shown is not None
    assert "(1.10,123456789012345678901234567890,1e-7)" in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps(FLIGHTS[:1]),
        json.dumps(FLIGHTS, indent=1),
        json.dumps(FLIGHTS)[:-5] + "]",
        "[" * 300 + "]" * 300,
        json.dumps(list(range(200))),
        '{"twice": 1, "twice": 2, "pad": [' + '"x", ' * 80 + '"x"]}',
        '{"half": "\\ud83d", "pad": [' + '"x", ' * 80 + '"x"]}',
        "[not json at all] " * 20 + "]",
    ],
    ids=["empty", "short", "small", "a file", "broken", "deep", "no gain", "a key twice", "half a character", "prose"],
)
def test_anything_else_is_left_as_it_is(text: str) -> None:
    assert json_as_table(text) is None


def test_data_too_deep_for_a_table_is_shown_as_text() -> None:
    deep: Any = "end"
    for _ in range(60):
        deep = [deep]
    assert '"end"' in to_compact_text(deep)


DATA = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: (
        some.lists(inner, max_size=4) | some.dictionaries(some.text(min_size=1, max_size=9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(some.lists(some.fixed_dictionaries({"first_key": DATA, "second_key": DATA}), min_size=6, max_size=6))
def test_every_key_and_every_value_is_in_the_table(records: list[dict[str, Any]]) -> None:
    shown = json_as_table(json.dumps(records))
    if shown is not None:
        for leaf in leaves(records):
            assert leaf in shown


def leaves(value: Any) -> list[str]:
    """Keys and values, as a table may spell them."""
    if isinstance(value, dict):
        return [*map(spelled, value), *(leaf for item in value.values() for leaf in leaves(item))]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [spelled(value)]


def spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).strip('"')
