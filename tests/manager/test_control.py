"""What people can ask of a session's memory: compact, explain, interrupt, pin, summaries, recall, retention."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ConfigError, ContextManager, PinRefused, load_config
from amplifier_context_core.compaction.checkpoint import Draft
from amplifier_context_core.compaction.strategies import ClearToolOutputs, ClipToolOutputs, FoldRounds, Goal, Strategy
from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.manager.support import Message, ask, bare, feed, new_manager, rounds, session, size, text, work

BUDGET = 4_000


class Watch(Strategy):
    """Notes the goals it is given."""

    name = "watch"

    def __init__(self) -> None:
        self.goals: list[Goal] = []

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        self.goals.append(goal)
        return draft


async def test_every_control_is_a_capability_of_the_session() -> None:
    coordinator = MockCoordinator()
    manager = await feed(new_manager(), work(30))
    await mount_manager(coordinator, manager, "context-test")
    names = ["compact", "explain", "interrupt", "snapshot", "pin", "compact_summary", "recall", "search"]
    for name in [*names, "request_retention"]:
        assert callable(coordinator.get_capability(f"context.{name}")), name
    assert (await coordinator.get_capability("context.explain")())["messages"] == 61
    assert len(coordinator.get_capability("context.snapshot")()) == 61


async def test_one_mark_as_text_is_erased_like_a_list_of_it() -> None:
    manager = await feed(new_manager(), work(3))
    assert await manager.forget("m3") == ["m3"]


@pytest.mark.parametrize("marks", [None, 3, b"m3", [3], {"m3": 1}])
async def test_marks_that_are_no_list_of_marks_are_an_error_and_erase_nothing(marks: Any) -> None:
    manager = await feed(new_manager(), work(3))
    before = await manager.get_messages()
    with pytest.raises(ValueError, match="a list of marks"):
        await manager.forget(marks)
    assert await manager.get_messages() == before


# --- compact ----------------------------------------------------------------------------------------------------------


async def test_compact_compacts_below_the_trigger() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, 8_000)
    report = await manager.compact()
    after = await ask(manager, 8_000)
    assert report["compacted"] is True
    assert size(after) < size(before)
    assert report["after_tokens"] == size(after)
    assert (await manager.explain())["compactions"] == 1


async def test_compact_before_any_request_uses_the_configured_budget() -> None:
    manager = await feed(new_manager(max_tokens=8_000), work(60))
    assert (await manager.compact())["compacted"] is True
    assert size(await ask(manager)) < size(await manager.get_messages())


async def test_compact_with_nothing_to_free_says_so() -> None:
    for messages in ([], [{"role": "user", "content": "Hi."}]):
        report = await (await feed(new_manager(), messages)).compact()
        assert report["compacted"] is False
        assert report["reason"]


async def test_the_focus_reaches_the_folder_now_and_later() -> None:
    watch = Watch()
    manager = await feed(new_manager(strategies=[watch, FoldRounds()]), work(60))
    await ask(manager, 8_000)
    await manager.compact("the ticket numbers")
    assert watch.goals[-1].focus == "the ticket numbers"
    await feed(manager, rounds(80, start=500))
    await ask(manager, 8_000)
    assert len(watch.goals) >= 2
    assert watch.goals[-1].focus == "the ticket numbers"


async def test_a_focus_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ConfigError, match="focus"):
        await new_manager().compact(focus=7)  # type: ignore[arg-type]


async def test_compacting_twice_is_compacting_once() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, 8_000)
    await manager.compact()
    once = await ask(manager, 8_000)
    await manager.compact()
    assert text(await ask(manager, 8_000)) == text(once)


async def test_compact_leaves_the_history_alone() -> None:
    manager = await feed(new_manager(), session(200))
    before = await manager.get_messages()
    await manager.compact()
    assert await manager.get_messages() == before


# --- explain ----------------------------------------------------------------------------------------------------------


async def explained(messages: list[Message], budget: int = BUDGET) -> tuple[ContextManager, dict[str, Any]]:
    manager = await feed(new_manager(session_id="s-1"), messages)
    await ask(manager, budget)
    return manager, await manager.explain()


async def test_explain_reports_on_session_history_and_view() -> None:
    manager, report = await explained(work(60))
    view = await ask(manager, BUDGET)
    assert (report["session_id"], report["messages"], report["turns"]) == (manager.session_id, 121, 1)
    assert report["session_id"].startswith("s-1")
    assert report["compactions"] == 1
    assert report["tokens_saved"] == size(await manager.get_messages()) - size(view)
    assert report["view"]["messages"] == len(view)
    assert report["view"]["counted"] == report["view"]["tokens"] == size(view)
    assert (report["view"]["budget"], report["view"]["trigger"], report["view"]["target"]) == (4_000, 3_680, 2_000)
    assert report["view"]["checkpoint"] == "m121"
    assert "92%" in report["view"]["why"]
    assert report["warnings"] == []


async def test_explain_is_plain_json() -> None:
    for messages in (work(1), work(60), session(100)):
        _, report = await explained(messages)
        assert text([report])


async def test_explain_before_any_request_asks_for_one() -> None:
    report = await (await feed(new_manager(max_tokens=9_000), work(3))).explain()
    assert report["view"]["budget"] == 9_000


async def test_every_message_of_the_history_is_in_exactly_one_round() -> None:
    for budget in (1_000, 4_000, 100_000):
        manager, report = await explained(session(150), budget)
        spans = [(int(row["mark"][1:]), int(row["to"][1:])) for row in report["rounds"]]
        assert spans == sorted(spans)
        assert [start for start, _ in spans] == [1, *(end + 1 for _, end in spans[:-1])]
        assert spans[-1][1] == len(await manager.get_messages())


async def test_tokens_before_add_up_to_the_history() -> None:
    for budget in (1_000, 4_000, 100_000):
        manager, report = await explained(work(100), budget)
        assert sum(row["tokens_before"] for row in report["rounds"]) == size(await manager.get_messages())


async def test_tokens_after_add_up_to_the_view_but_for_the_frames_of_chapters_and_rounding() -> None:
    for budget in (1_000, 4_000, 100_000):
        _, report = await explained([{"role": "system", "content": "Prompt."}, *work(100)], budget)
        shown = sum(row["tokens_after"] for row in report["rounds"]) + size([{"role": "system", "content": "Prompt."}])
        assert shown == pytest.approx(report["view"]["counted"], rel=0.1)


async def test_the_system_prompt_is_no_round_that_was_dropped() -> None:
    manager, report = await explained([{"role": "system", "content": "Prompt."}, *work(100)])
    assert report["rounds"][0]["mark"] == "m2"
    assert sum(row["tokens_before"] for row in report["rounds"]) == size((await manager.get_messages())[1:])


async def test_without_a_compaction_every_round_is_kept_at_its_cost() -> None:
    _, report = await explained(work(5))
    assert [row["state"] for row in report["rounds"]] == ["kept"] * 6
    assert all(row["tokens_before"] == row["tokens_after"] for row in report["rounds"])
    assert [row["turn"] for row in report["rounds"]] == ["u1", *["a1"] * 5]


async def test_each_round_says_what_became_of_it_and_by_which_rule() -> None:
    manager = new_manager(ladder=["supersede", {"clip": {"max_chars": 100}}, {"clear": {"keep_last": 1}}, "fold"])
    talk = ConversationBuilder().user("Look.")
    for number in range(30):
        talk.round("read", {"path": "same" if number % 3 == 0 else f"f{number}"}, f"{number} " * 300)
    await feed(manager, talk.messages)
    await ask(manager, BUDGET)
    rows = (await manager.explain())["rounds"]
    found = {row["state"]: row["rule"] for row in rows}
    assert found["superseded"] == "supersede"
    assert found["clipped"] == "clip"
    assert set(found) <= {"kept", "clipped", "cleared", "superseded", "folded", "dropped"}
    for row in rows:
        assert row["tokens_after"] <= row["tokens_before"]


async def test_the_report_names_what_is_protected_and_why() -> None:
    messages = [
        {"role": "system", "content": "Prompt."},
        {"role": "user", "content": "The task."},
        *rounds(20),
        {"role": "user", "content": "Keep this.", "metadata": {"pinned": True}},
        *rounds(40, start=100),
        {"role": "user", "content": "The newest."},
        *rounds(3, start=200),
    ]
    _, report = await explained(messages)
    why = {member["why"]: member["mark"] for member in report["floor"]["members"]}
    assert why["system prompt"] == "system prompt"
    assert why["task"] == "m2"
    assert why["pinned"] == "m43"
    assert why["newest human message"] == "m124"
    assert why["newest round"] == "m129"
    assert report["floor"]["tokens"] == sum(member["tokens"] for member in report["floor"]["members"])


async def test_explain_reports_what_was_fixed() -> None:
    talk = ConversationBuilder().user("Look.")
    talk.call(("look", {}))
    talk.user("Stop.").say("Stopped.").user("Go on.")
    _, report = await explained(talk.messages)
    assert any("stand-in result" in row["rule"] for row in report["rounds"])


def asking_to_be_pinned(number: int, words: int) -> Message:
    return {"role": "user", "content": f"{number} " + "word " * words, "metadata": {"pinned": True}}


async def pin_all(manager: ContextManager, names: list[str]) -> None:
    for name in names:
        await manager.pin(name)


# --- pins -------------------------------------------------------------------------------------------------------------


async def test_a_pin_keeps_a_message_and_its_round_verbatim() -> None:
    manager = await feed(new_manager(), work(20))
    await manager.pin("m5")
    await feed(manager, rounds(60, start=100))
    view = await ask(manager, BUDGET)
    original = await manager.recall("m5")
    assert original is not None
    place = next(i for i, m in enumerate(view) if m["content"] == original["content"])
    assert view[place - 1]["tool_calls"][0]["id"] == "call_1"


async def test_a_pin_brings_back_what_was_folded_already() -> None:
    manager = await feed(new_manager(), work(60))
    original = work(60)[4]["content"]
    assert original not in [m["content"] for m in await ask(manager, BUDGET)]
    await manager.pin("m5")
    assert original in [m["content"] for m in await ask(manager, BUDGET)]
    await feed(manager, rounds(60, start=100))
    assert original in [m["content"] for m in await ask(manager, BUDGET)]


async def test_an_unpinned_message_may_go_again() -> None:
    manager = await feed(new_manager(), work(20))
    original = work(20)[4]["content"]
    await manager.pin("m5")
    await manager.pin("m5", pinned=False)
    await feed(manager, rounds(60, start=100))
    assert original not in [m["content"] for m in await ask(manager, BUDGET)]


async def test_a_pin_beyond_the_share_is_refused_with_sizes() -> None:
    manager = await feed(new_manager(), [*work(5), {"role": "user", "content": "word " * 1_600}])
    await manager.get_messages_for_request(BUDGET)
    with pytest.raises(PinRefused, match=r"m12 has 2,00\d tokens; pins hold 0 of the 1,000 they may fill .*25%.*4,000"):
        await manager.pin("m12")
    with pytest.raises(ValueError, match="pin_share"):
        await manager.pin("m12")


async def test_pins_together_are_held_to_their_share() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    for number in range(3, 20, 2):
        await manager.pin(f"m{number}")
    with pytest.raises(PinRefused, match=r"pins hold \d{3} of the 1,000"):
        await pin_all(manager, [f"m{number}" for number in range(21, 40, 2)])


async def test_a_refused_pin_changes_nothing() -> None:
    manager = await feed(new_manager(), [*work(5), {"role": "user", "content": "word " * 1_600}])
    before = await manager.get_messages_for_request(BUDGET)
    with pytest.raises(PinRefused):
        await manager.pin("m12")
    assert await manager.get_messages_for_request(BUDGET) == before


async def test_pinning_twice_costs_once() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    for _ in range(50):
        await manager.pin("m5")


@pytest.mark.parametrize("mark", ["m0", "m999", "12", "", "x", "m1.5"])
async def test_a_mark_that_names_nothing_cannot_be_pinned(mark: str) -> None:
    manager = await feed(new_manager(), work(3))
    with pytest.raises(PinRefused):
        await manager.pin(mark)


async def test_messages_that_ask_to_be_pinned_are_held_to_the_share_too() -> None:
    messages = [asking_to_be_pinned(number, 300) for number in range(10)]
    manager = await feed(
        new_manager(),
        [{"role": "user", "content": "Go."}, *messages, *rounds(60), {"role": "user", "content": "Go on."}],
    )
    view = await ask(manager, BUDGET)
    kept = [m for m in view if (m.get("metadata") or {}).get("pinned")]
    assert kept
    assert size(kept) <= 0.25 * BUDGET
    warnings = (await manager.explain())["warnings"]
    assert len([warning for warning in warnings if "pin" in warning]) == 1


async def test_a_pin_is_refused_when_messages_that_ask_to_be_pinned_fill_the_share() -> None:
    messages = [asking_to_be_pinned(number, 240) for number in range(3)]
    manager = await feed(new_manager(), [{"role": "user", "content": "Go."}, *messages, *rounds(10)])
    await ask(manager, BUDGET)
    with pytest.raises(PinRefused, match="pins hold 9"):
        await pin_all(manager, ["m6", "m8", "m10"])


async def test_a_pin_is_refused_when_the_round_that_stays_with_it_would_outgrow_the_share() -> None:
    talk = ConversationBuilder().user("Read both.")
    small, large = talk.call(("read", {"path": "small"}), ("read", {"path": "large"}))
    talk.result(small, "a few words").result(large, "word " * 900)
    manager = await feed(new_manager(), [*talk.messages, *rounds(10)])
    await ask(manager, BUDGET)
    with pytest.raises(PinRefused):
        await manager.pin("m3")


async def test_clear_drops_the_pins() -> None:
    manager = await feed(new_manager(), work(20))
    await manager.pin("m5")
    await manager.clear()
    await feed(manager, work(60))
    await ask(manager, BUDGET)
    assert not [m for m in (await manager.explain())["floor"]["members"] if m["why"] == "pinned"]


# --- summaries of results ---------------------------------------------------------------------------------------------


def clipping(**config: Any) -> ContextManager:
    """A manager whose ladder does nothing but clip and clear outputs."""
    return new_manager(strategies=[ClipToolOutputs(100), ClearToolOutputs(1)], **config)


async def test_a_summary_in_the_metadata_takes_the_place_of_a_clip() -> None:
    messages = work(60)
    messages[2]["metadata"] = {"compact_summary": "FILE ZERO IN SHORT"}
    view = await ask(await feed(clipping(), messages), BUDGET)
    assert "FILE ZERO IN SHORT" in [message["content"] for message in view]


async def test_a_summary_registered_by_call_id_takes_the_place_of_a_clip() -> None:
    manager = await feed(clipping(), work(60))
    await manager.compact_summary("call_3", "FILE THREE IN SHORT")
    view = await ask(manager, BUDGET)
    assert view[8]["content"] == "FILE THREE IN SHORT"
    assert bare(await manager.get_messages()) == work(60)


async def test_a_summary_is_used_for_a_giant_at_any_age() -> None:
    manager = await feed(new_manager(), work(1, output=100_000))
    await manager.compact_summary("call_0", "THE GIANT IN SHORT")
    view = await ask(manager, BUDGET)
    assert view[-1]["content"] == "THE GIANT IN SHORT"


async def test_a_summary_registered_after_the_result_was_clipped_is_used_at_the_next_compaction() -> None:
    manager = await feed(clipping(), work(60))
    await ask(manager, BUDGET)
    await manager.compact_summary("call_59", "THE LAST IN SHORT")
    await feed(manager, rounds(60, start=100))
    assert "THE LAST IN SHORT" in text(await ask(manager, BUDGET))


async def test_clear_drops_registered_summaries() -> None:
    manager = await feed(clipping(), work(60))
    await manager.compact_summary("call_3", "FILE THREE IN SHORT")
    await manager.clear()
    await feed(manager, work(60))
    assert "IN SHORT" not in text(await ask(manager, BUDGET))


@pytest.mark.parametrize(("call", "summary"), [("", "x"), (None, "x"), ("call_1", None), (7, "x")])
async def test_a_summary_without_a_call_id_or_a_text_is_an_error(call: Any, summary: Any) -> None:
    with pytest.raises(ConfigError, match="compact_summary"):
        await new_manager().compact_summary(call, summary)


# --- recall -----------------------------------------------------------------------------------------------------------


async def test_every_message_is_recallable_whatever_was_folded() -> None:
    messages = session(300)
    manager = await feed(new_manager(), messages)
    await ask(manager, BUDGET)
    recalled = [await manager.recall(f"m{number}") for number in range(1, 301)]
    assert bare([message for message in recalled if message]) == messages


async def test_search_finds_what_was_folded() -> None:
    messages = work(80)
    messages[10]["content"] = "the needle is called zx81_frobnicator"
    manager = await feed(new_manager(), messages)
    await ask(manager, BUDGET)
    assert (await manager.search("zx81_frobnicator"))[0] == "m11"
    assert await manager.search("nothing_of_that_name") == []
    assert len(await manager.search("file", limit=3)) == 3


@pytest.mark.parametrize(("search_index", "asked"), [("auto", ["needle"]), ("scan", [])])
async def test_a_store_that_searches_is_asked_unless_the_config_says_scan(
    search_index: str, asked: list[str], tmp_path: Path
) -> None:
    queries: list[str] = []

    class Asked(SqliteStore):
        async def search(self, session_id: str, query: str, limit: int = 10) -> list[int]:
            queries.append(query)
            return await super().search(session_id, query, limit)

    manager = ContextManager(load_config({"search_index": search_index}), store=Asked(tmp_path / "a.db"))
    try:
        await feed(manager, [{"role": "user", "content": "Find the needle."}])
        assert await manager.search("needle") == ["m1"]
    finally:
        await manager.close()
    assert queries == asked


# --- retention --------------------------------------------------------------------------------------------------------


def steered(content: str) -> Message:
    return {"role": "user", "content": content, "metadata": {"ephemeral": True, "persisted": True}}


async def test_a_retained_text_stays_verbatim_in_the_view() -> None:
    manager = await feed(new_manager(), [*work(5), steered("STEER LEFT"), *rounds(80, start=100)])
    assert "STEER LEFT" not in [m["content"] for m in await ask(manager, BUDGET)]
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert check_request(view) == []
    assert size(view) <= BUDGET
    assert "STEER LEFT" in [m["content"] for m in view]


async def test_of_equal_texts_the_newest_stays() -> None:
    manager = await feed(
        new_manager(), [*work(5), steered("STEER LEFT"), *rounds(40, start=100), steered("STEER LEFT")]
    )
    await feed(manager, rounds(60, start=200))
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert [m["content"] for m in view].count("STEER LEFT") == 1


async def test_without_texts_retention_is_an_ordinary_request() -> None:
    manager = await feed(new_manager(), work(60))
    view = await ask(manager, BUDGET)
    assert await manager.request_retention(retain_contents=[], token_budget=BUDGET) == view


async def test_a_text_that_is_not_in_the_history_is_a_value_error() -> None:
    manager = await feed(new_manager(), work(3))
    with pytest.raises(ValueError, match="not in the history"):
        await manager.request_retention(retain_contents=["never said"])


async def test_a_text_of_an_assistant_or_a_tool_is_not_meant() -> None:
    manager = await feed(new_manager(), [*work(1), {"role": "assistant", "content": "said by the model"}])
    with pytest.raises(ValueError, match="not in the history"):
        await manager.request_retention(retain_contents=["said by the model"])


async def test_texts_that_cannot_fit_are_a_context_length_error() -> None:
    manager = await feed(new_manager(), [*work(5), steered("word " * 5_000)])
    with pytest.raises(ContextLengthError):
        await manager.request_retention(retain_contents=["word " * 5_000], token_budget=BUDGET)
    await ask(manager, 20_000)


async def test_a_text_that_fits_stays_however_large_its_share() -> None:
    steering = steered("word " * 1_600)  # half of the budget
    manager = await feed(new_manager(), [*work(5), steering, *rounds(80, start=100)])
    view = await manager.request_retention(retain_contents=[steering["content"]], token_budget=BUDGET)
    assert check_request(view) == []
    assert steering["content"] in [m["content"] for m in view]
    assert size(view) <= BUDGET


async def test_hard_fit_holds_the_view_to_this_very_budget() -> None:
    manager = await feed(new_manager(), [*work(40), steered("STEER LEFT"), *rounds(2, start=100)])
    first = await ask(manager, 8_000)
    budget = size(first) // 2
    view = await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=budget, hard_fit=True)
    assert check_request(view) == []
    assert size(view) <= budget
    assert "STEER LEFT" in [m["content"] for m in view]


async def test_hard_fit_by_the_providers_own_count() -> None:
    """A provider that was measured to count twice as much must be sent half."""
    manager = await feed(new_manager(), [*work(60), steered("STEER LEFT")])
    provider = SimpleNamespace(name="p")
    manager.meter.correction(("p", "")).ratio = 2.0
    view = await manager.request_retention(
        retain_contents=["STEER LEFT"], provider=provider, token_budget=BUDGET, hard_fit=True
    )
    assert 2 * size(view) <= BUDGET


async def test_hard_fit_that_is_impossible_is_a_context_length_error() -> None:
    manager = await feed(new_manager(), [{"role": "system", "content": "word " * 2_000}, *work(3), steered("LEFT")])
    with pytest.raises(ContextLengthError):
        await manager.request_retention(retain_contents=["LEFT"], token_budget=1_000, hard_fit=True)


async def test_retention_does_not_disturb_the_view_afterwards_more_than_it_must() -> None:
    manager = await feed(new_manager(), [*work(60), steered("STEER LEFT"), *rounds(2, start=100)])
    before = await ask(manager, BUDGET)
    await manager.request_retention(retain_contents=["STEER LEFT"], token_budget=BUDGET)
    assert await ask(manager, BUDGET) == before  # it was there already


async def test_a_summary_registered_after_a_view_showed_the_result_waits_for_a_compaction() -> None:
    manager = await feed(new_manager(), work(1, output=100_000))
    before = await ask(manager, BUDGET)
    await manager.compact_summary("call_0", "THE GIANT IN SHORT")
    manager.history.on_cancelled()
    await manager.on_turn_complete()  # renders the view once more
    assert await ask(manager, BUDGET) == before
