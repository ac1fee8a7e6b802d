"""Tables: keys are written once, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_context_core.rendering.json_tables import json_as_table, to_compact_text

FLIGHTS = [
    {"flight_number": f"HAT{n:03d}", "from": "SFO", "seats": {"economy": n, "business": 2 * n}, "stops": []}
    for n in range(1, 9)
]


def table(value: object) -> str:
    shown = json_as_table(json.dumps(value))
    assert shown is not None
    return shown


def test_records_in_lists_of_lists_share_one_head() -> None:
    shown = table([FLIGHTS[:2], FLIGHTS[2:4], FLIGHTS[4:6]])
    assert shown.count("flight_number") == 1


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


CODE = 'def load(path):\n\tif path == "a\\nb":\n\t\treturn None\n' * 9


@pytest.mark.parametrize(
    ("value", "head", "tail"),
    [
        pytest.param(
            {"stdout": CODE, "returncode": 0}, '{stdout: """', '""", returncode: 0}', id="of a tool of Amplifier"
        ),
        pytest.param({"content": [{"text": CODE}]}, '{content: [{text: """', '"""}]}', id="within a list"),
    ],
)
def test_a_text_of_several_lines_is_shown_by_its_lines(value: object, head: str, tail: str) -> None:
    assert table(value) == f"{head}\n{CODE}\n{tail}"


@pytest.mark.parametrize(
    "text", [f'{CODE}"""', f"\x1b[31m{CODE}", CODE.replace("\n", "\r\n"), "one line\n" * 2 + "x" * 200]
)
def test_a_text_whose_lines_would_be_unclear_keeps_its_escapes(text: str) -> None:
    assert json_as_table(json.dumps({"stdout": text})) is None


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
