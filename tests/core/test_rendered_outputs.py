"""Outputs too large for their share: clipped, shown by a short form, or as a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.summaries import Summaries
from amplifier_context_core.rendering.truncate import clip_text
from tests.core.drafts import transcript
from tests.core.rendered import GIANT, fixes, valid
from tests.messages import Message, call, result, user


def test_an_output_larger_than_its_share_is_clipped_with_its_mark() -> None:
    view = valid(call("a"), result("a", GIANT), output_limit=500)
    assert view[1]["content"].startswith("row 00000")
    assert view[1]["content"].endswith("row 04999")
    assert "m3" in view[1]["content"]
    assert count_message_tokens(view[1]) <= 520
    assert "an output larger than its share is clipped" in fixes(call("a"), result("a", GIANT), output_limit=500)[0]


def test_an_output_with_more_bytes_than_may_be_shown_is_clipped_whatever_its_tokens() -> None:
    assert len(valid(call("a"), result("a", GIANT), output_bytes=1_000)[1]["content"]) <= 1_000


@pytest.mark.parametrize(
    ("message", "summaries"),
    [
        (result("a", GIANT, metadata={"compact_summary": "five thousand rows"}), {}),
        (result("a", GIANT), {3: {"a": "five thousand rows"}}),
        (result("a", GIANT, metadata={"compact_summary": "older"}), {3: {"a": "five thousand rows"}}),
        (
            user(
                [{"type": "tool_result", "tool_use_id": "a", "content": GIANT, "compact_summary": "five thousand rows"}]
            ),
            {},
        ),
    ],
    ids=["metadata", "registered", "registered wins", "block"],
)
def test_a_giant_with_a_short_form_of_its_own_is_shown_by_it(message: Message, summaries: Summaries) -> None:
    assert valid(call("a"), message, output_limit=500, summaries=summaries)[1]["content"] == "five thousand rows"


RECORDS = json.dumps([{"flight_number": f"HAT{n}", "price": n} for n in range(40)])


def rendered(content: str, **settings: Any) -> RenderedRound:
    history = transcript([user("go"), call("a"), result("a", content)])
    renderer = Renderer(approx_token_counter, **settings)
    return renderer.render(rounds_of(history.snapshot())[1])


def test_a_large_output_in_json_is_shown_as_a_table_and_says_so() -> None:
    rendering = rendered(RECORDS, output_limit=1_000, tables=True)
    assert rendering.messages[1].message["content"].startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert rendering.fixes == ("m3: an output in JSON is shown with fewer signs",)


def test_a_text_in_json_is_shown_by_its_lines_however_small_and_other_json_stays() -> None:
    output = json.dumps({"stdout": "".join(f"{n:6}\tx = {n}\n" for n in range(1, 30)), "returncode": 0})
    rendering = rendered(output, output_limit=100_000, tables=True, fewer_line_numbers=True)
    assert rendering.messages[1].message["content"].startswith('{stdout: """\n     1\tx = 1\n     2\tx = 2\nx = 3\n')
    assert rendered(RECORDS, output_limit=100_000, tables=True).messages[1].message["content"] == RECORDS


def test_a_listing_is_shown_with_fewer_line_numbers_and_says_so() -> None:
    listing = "\n".join(f"{number:6}\tline {number}" for number in range(1, 41))
    rendering = rendered(listing, output_limit=1_000, fewer_line_numbers=True)
    shown = rendering.messages[1]
    assert shown.message["content"].startswith("     1\tline 1\nline 2\n")
    assert shown.tokens == count_message_tokens(shown.message, approx_token_counter)
    assert rendering.fixes == ("m3: each tenth line of a listing is shown with its number",)
    clipped = rendered(listing, output_limit=1_000, fewer_line_numbers=True, output_bytes=300).messages[1]
    assert len(clipped.message["content"]) <= 300
    assert clipped.message["content"].startswith("     1\tline 1\nline 2\n")


def test_a_table_larger_than_its_share_is_clipped() -> None:
    rendering = rendered(RECORDS, output_limit=80, tables=True)
    text = rendering.messages[1].message["content"]
    assert text.startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert "characters cut, whole text: m3" in text
    assert rendering.messages[1].tokens <= 100


def test_cuts_fall_between_lines_where_one_ends_nearby() -> None:
    lines = "\n".join(f"line {number:04d} of the output" for number in range(500))
    head, _, tail = clip_text(lines, 1_000).partition("\n[...")
    assert head.endswith("of the output")
    assert tail.partition("]\n")[2].startswith("line ")
