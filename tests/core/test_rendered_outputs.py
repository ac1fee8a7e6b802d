"""Outputs too large for their share: clipped, shown by a short form, or as a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import (
    NO_OUTPUT,
    RenderedRound,
    Renderer,
    short_result,
)
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.summaries import ResultSummaries, Summaries
from amplifier_context_testing import check_request
from tests.core.drafts import rounds, transcript
from tests.core.rendered import GIANT, fixes, renderings, valid
from tests.messages import IMAGE, Message, block, call, result, user

# -- giants ------------------------------------------------------------------------------------------------------------


def test_an_output_larger_than_its_share_is_clipped_with_its_mark() -> None:
    view = valid(call("a"), result("a", GIANT), output_limit=500)
    assert view[1]["content"].startswith("row 00000")
    assert view[1]["content"].endswith("row 04999")
    assert "m3" in view[1]["content"]
    assert count_message_tokens(view[1]) <= 520
    assert "an output larger than its share is clipped" in fixes(call("a"), result("a", GIANT), output_limit=500)[0]


def test_an_output_within_its_share_is_whole() -> None:
    assert valid(call("a"), result("a", GIANT))[1]["content"] == GIANT


def test_an_output_with_more_bytes_than_may_be_shown_is_clipped_whatever_its_tokens() -> None:
    assert len(valid(call("a"), result("a", GIANT), output_bytes=1_000)[1]["content"]) <= 1_000


def test_an_orphan_is_clipped_as_well() -> None:
    (note,) = valid(result("lost", GIANT), output_limit=500)
    assert len(note["content"]) <= 1_700
    assert "m2" in note["content"]


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


@pytest.mark.parametrize("summary", ["", " ", None, 5, ["x"]])
def test_a_short_form_that_says_nothing_is_none(summary: Any) -> None:
    (round_,) = rounds(call("a"), result("a", "out", metadata={"compact_summary": summary}))
    assert ResultSummaries({}).of(round_.entries[1], "a") is None


def test_a_short_result_is_never_empty() -> None:
    (round_,) = rounds(call("a"), result("a", ""))
    assert short_result(result("a", ""), round_.entries[1], "a", 100, ResultSummaries({}))["content"] == NO_OUTPUT


def test_words_beside_results_in_a_tool_message_stay_as_a_quoted_note() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b", "content": "two"},
        block("Both read."),
    ]
    rendering = renderings(user("Start."), call("a", "b"), {"role": "tool", "content": blocks})[1]
    assert [one.message["content"] for one in rendering.messages[1:3]] == ["one", "two"]
    note = rendering.messages[3].message
    assert (note["role"], "Both read." in note["content"], note["content"][:15]) == ("user", True, "<quoted_output>")
    assert not parse_message(rendering.messages[-1].message)[1].human
    for one in rendering.messages:
        assert one.tokens == count_message_tokens(one.message)


@pytest.mark.parametrize(
    "content",
    [
        [block("Be careful."), IMAGE],
        [block(""), block("Be careful.")],
        [block("Be careful."), {"type": "file", "path": "rules.md"}],
        [{"type": "thinking", "thinking": "hm"}, block("Be careful.")],
        [block(" ")],
    ],
    ids=str,
)
async def test_a_system_prompt_in_blocks_is_valid(content: list[Any]) -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message({"role": "system", "content": content})
    await manager.add_message(user("Start."))
    view = await manager.get_messages_for_request(token_budget=5_000)
    assert check_request(view) == []
    assert (await manager.explain())["view"]["counted"] == sum(count_message_tokens(message) for message in view)


# -- tables ------------------------------------------------------------------------------------------------------------


RECORDS = json.dumps([{"flight_number": f"HAT{n}", "price": n} for n in range(40)])


def rendered(content: str, **settings: Any) -> RenderedRound:
    history = transcript([user("go"), call("a"), result("a", content)])
    renderer = Renderer(approx_token_counter, **settings)
    return renderer.render(rounds_of(history.snapshot())[1])


def test_a_large_output_in_json_is_shown_as_a_table_and_says_so() -> None:
    rendering = rendered(RECORDS, output_limit=1_000, tables=True)
    assert rendering.messages[1].message["content"].startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert rendering.fixes == ("m3: an output in JSON is shown as a table",)


@pytest.mark.parametrize("settings", [{"output_limit": 10_000, "tables": True}, {"output_limit": 1_000}])
def test_a_small_one_or_where_tables_are_not_wanted_is_shown_as_it_is(settings: dict[str, Any]) -> None:
    assert rendered(RECORDS, **settings).messages[1].message["content"] == RECORDS


def test_a_table_larger_than_its_share_is_clipped() -> None:
    rendering = rendered(RECORDS, output_limit=80, tables=True)
    text = rendering.messages[1].message["content"]
    assert text.startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert "characters cut, whole text: m3" in text
    assert rendering.messages[1].tokens <= 100
