"""What `explain` reports of every round of a view, and its sums."""

from __future__ import annotations

from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, size, work

BUDGET = 4_000


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
    assert (report["view"]["budget"], report["view"]["trigger"], report["view"]["target"]) == (4_000, 3_800, 1_600)
    assert report["view"]["checkpoint"] == "m121"
    assert "95%" in report["view"]["why"]
    assert report["warnings"] == []


async def test_tokens_before_add_up_to_the_history_without_its_system_prompt() -> None:
    for budget in (1_000, 4_000, 100_000):
        manager, report = await explained([{"role": "system", "content": "Prompt."}, *work(100)], budget)
        assert report["rounds"][0]["mark"] == "m2"
        assert sum(row["tokens_before"] for row in report["rounds"]) == size((await manager.get_messages())[1:])


async def test_each_round_says_what_became_of_it_and_by_which_rule() -> None:
    manager = new_manager(
        target_usage=0.5, ladder=["supersede", {"clip": {"max_chars": 100}}, {"clear": {"keep_last": 1}}, "fold"]
    )
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


async def test_a_report_on_a_view_that_a_request_would_compact_first_is_no_overflow() -> None:
    manager = await feed(new_manager(strict=True, max_tokens=3_000), work(40, output=900))
    report = await manager.explain()
    assert report["view"]["tokens"] > report["view"]["budget"] == 3_000
    assert report["warnings"] == []
    assert size(await ask(manager)) <= 3_000
    assert (await manager.explain())["warnings"] == []


async def test_explain_reports_what_was_fixed() -> None:
    talk = ConversationBuilder().user("Look.")
    talk.call(("look", {}))
    talk.user("Stop.").say("Stopped.").user("Go on.")
    _, report = await explained(talk.messages)
    assert any("placeholder result" in row["rule"] for row in report["rounds"])
