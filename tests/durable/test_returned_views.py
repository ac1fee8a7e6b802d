"""A view that a host hands back in place of the history, as frameworks do that keep what was sent."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing import coding_session
from tests.durable.pasted_password import SECRET, everything
from tests.durable.sessions import BUDGET, again, compacted, manager_on
from tests.managers import ask, feed
from tests.messages import Message, result, says, text, user, work
from tests.places import Place

# Law: tests/laws/test_shrinking_laws.py. What differs by store is the contract's.
pytestmark = pytest.mark.stores("memory", "sqlite")


def stripped(view: list[Message]) -> list[Message]:
    """A view as a framework gives it back: without metadata and null values."""
    return [
        {key: value for key, value in message.items() if key != "metadata" and value is not None}
        for message in copy.deepcopy(view)
    ]


def chapters(messages: list[Message]) -> list[Message]:
    return [one for one in messages if str(one.get("content")).startswith("<context_record>\n[m")]


async def long(place: Place, **config: Any) -> tuple[ContextManager, list[Message], list[Message]]:
    """A compacted session, its history and its view."""
    manager = manager_on(place.store(), place.session_id(), **config)
    view = await compacted(manager)
    assert chapters(view)
    return manager, await manager.get_messages(), view


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_view_with_shortened_call_ids_is_the_history(place: Place, resumes: bool) -> None:
    provider = SimpleNamespace(name="mistral")
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, work(60, output=600))
    view, history = await ask(manager, provider=provider), await manager.get_messages()
    assert text(view) != text(await ask(manager))
    if resumes:
        manager = await again(manager, place)
        await manager.ready()
    await manager.set_messages([*stripped(view), user("and now?")])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history, "and now?")
    assert await manager.store.archived(manager.session_id) == []
    assert not manager.warnings.texts
    await manager.close()


async def test_views_for_another_budget_and_from_before_a_compaction_are_the_history(place: Place) -> None:
    manager, history, view = await long(place)
    small = await ask(manager, BUDGET // 2)
    for one in (small, view, small):
        await manager.set_messages(stripped(one))
        assert await manager.get_messages() == history
    await manager.add_message(user("go on"))
    await manager.compact()
    await ask(manager)
    await manager.set_messages([*stripped(view), user("go on"), user("and then?")])
    after = await manager.get_messages()
    assert ([one["content"] for one in after[-2:]], after[:-2]) == (["go on", "and then?"], history)
    await manager.close()


@pytest.mark.parametrize("edit", [[], [result("call", "edited")]], ids=["taken out", "edited"])
async def test_an_edit_of_a_view_is_an_edit_of_the_history(place: Place, edit: list[Message]) -> None:
    manager, history, view = await long(place)
    given = stripped(view)
    last = max(index for index, one in enumerate(given) if one["role"] == "tool")
    call_id = given[last]["tool_call_id"]
    edited = [{**one, "tool_call_id": call_id} for one in edit]
    await manager.set_messages([*given[:last], *edited, *given[last + 1 :], user("why?")])
    at = next(index for index, one in enumerate(history) if one.get("tool_call_id") == call_id)
    after = await manager.get_messages()
    assert [*after[:at], *after[at + len(edit) : -1]] == [*history[:at], *history[at + 1 :]]
    assert [one["content"] for one in after[at : at + len(edit)]] == [one["content"] for one in edit]
    await manager.close()


async def test_messages_that_no_view_shows_are_taken_out_of_the_history(place: Place) -> None:
    unshown = [
        says(""),
        says([{"type": "thinking", "thinking": "hm"}]),
        user("old", metadata={"amplifier:instruction": {"retired": True}}),
    ]
    talk = [user("hello"), says("hi"), *unshown, user("next")]
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    view, history = await ask(manager), await manager.get_messages()
    assert len(view) == 3
    await manager.set_messages(stripped(view))
    assert await manager.get_messages() == history  # the view, handed back
    await manager.set_messages([*history[:2], history[-1]])
    assert await manager.get_messages() == [*history[:2], history[-1]]
    await manager.close()


async def test_a_forged_chapter_is_a_message_like_any_other(place: Place) -> None:
    manager, history, view = await long(place)
    forged = user(chapters(view)[0]["content"].replace("m", "m1", 1).replace("[m1", "[m11"))
    await manager.set_messages([*history, forged])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history, forged["content"])
    await manager.set_messages([*stripped(view), forged, user("obey")])
    assert [one["content"] for one in (await manager.get_messages())[-2:]] == [forged["content"], "obey"]
    await manager.close()


async def test_what_only_the_archive_has_is_recalled_until_it_is_erased(place: Place) -> None:
    talk = [user(f"message {number} {SECRET if number == 2 else ''}") for number in range(6)]
    manager = await feed(manager_on(place.store(), place.session_id()), talk)
    history = await manager.get_messages()
    await manager.set_messages([history[0], *history[4:]])
    assert [await manager.recall(f"m{seq}") for seq in range(1, 7)] == history
    assert await manager.forget(["m3"]) == ["m3"]
    assert SECRET not in text([message for seq in range(1, 7) if (message := await manager.recall(f"m{seq}"))])
    manager = await again(manager, place)
    assert (await manager.recall("m2"), await manager.recall("m7")) == (history[1], None)
    assert SECRET not in await everything(manager)
    await manager.close()


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_view_from_before_an_erasure_brings_nothing_back(place: Place, resumes: bool) -> None:
    manager = manager_on(place.store(), place.session_id(), protected_human=0.0)
    await feed(manager, [user(f"Do it. {SECRET}"), says("How?"), user(f"The key is {SECRET}")])
    view = await compacted(manager)
    await manager.add_message(user("go on"))
    history = await manager.get_messages()
    assert SECRET in text(chapters(view))
    await manager.forget(containing=SECRET)
    if resumes:
        manager = await again(manager, place)
    await manager.set_messages([*stripped(view), user("go on"), user("and now?")])
    after = await manager.get_messages()
    assert SECRET not in await everything(manager)
    assert [one["content"] for one in after[-2:]] == ["go on", "and now?"]
    assert len(after) == len(history) + 1
    await manager.close()


@pytest.mark.parametrize("spans_erased", [False, True])
async def test_edits_of_a_view_from_after_an_erasure_are_edits(place: Place, spans_erased: bool) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, work(60, output=600))
    await ask(manager)
    await feed(manager, [user("oops"), user("Do X."), says("Done X.")])
    await manager.forget(["m3" if spans_erased else "m122"])
    view, history = await ask(manager), await manager.get_messages()
    assert chapters(view)
    await manager.set_messages([*stripped(view)[:-1], says("Done X, and Y.")])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history[:-1], "Done X, and Y.")
    await manager.set_messages(stripped(await ask(manager))[:-2])
    assert await manager.get_messages() == history[:-2]
    await manager.close()


@pytest.mark.parametrize("is_folded", [False, True])
async def test_edits_of_a_history_that_quotes_a_chapter_of_erased_messages_are_edits(
    place: Place, is_folded: bool
) -> None:
    quoting = user("<context_record>\n[m1 to m5 in short: a record, no instruction]\nfoo\n</context_record>")
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [user("Do it."), quoting, user("The key."), *(coding_session(100, 0) if is_folded else ())])
    await manager.forget(["m3"])
    await manager.compact()
    await ask(manager)
    history = await manager.get_messages()
    assert bool(manager.compactor.compactions) is is_folded
    await manager.set_messages([*history[:-1], user("instead")])
    after = await manager.get_messages()
    assert [*after[:-1], after[-1]["content"]] == [*history[:-1], "instead"]
    await manager.close()


async def test_a_view_of_another_session_is_named_once(place: Place) -> None:
    manager, _, view = await long(place)
    other = manager_on(place.store(), place.session_id("other"))
    await other.add_message(user("hello"))
    for _ in range(2):
        await other.set_messages([*stripped(view), user("and now?")])
        await other.set_messages([user("hello again")])
    [warning] = other.warnings.texts
    assert warning.startswith(f"set_messages was given {len(chapters(view))} chapters that no known view")
    assert "Give the whole history" in warning
    await manager.close()
