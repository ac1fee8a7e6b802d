"""A view that a host hands back in place of the history, as frameworks do that keep what was sent."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from tests.durable.sessions import BUDGET, SECRET, again, compacted, everything, manager_on
from tests.managers import ask, feed
from tests.messages import Message, call, result, says, text, user, work
from tests.places import Place

# Law: tests/laws/test_shrinking_laws.py. What differs by store is the contract's.
pytestmark = pytest.mark.stores("memory", "sqlite")


def stripped(view: list[Message]) -> list[Message]:
    """A view as a framework gives it back: without metadata and null values."""
    return [{key: one[key] for key in one if key != "metadata" and one[key] is not None} for one in copy.deepcopy(view)]


def chapters(messages: list[Message]) -> list[Message]:
    return [one for one in messages if str(one.get("content")).startswith("<context_record>\n[m")]


async def long(place: Place) -> tuple[ContextManager, list[Message], list[Message]]:
    """A compacted session, its history and its view."""
    manager = manager_on(place.store(), place.session_id())
    view = await compacted(manager)
    return manager, await manager.get_messages(), view


async def ended(manager: ContextManager, history: list[Message], *added: str) -> None:
    """Check that these messages were added to a history, and close the session."""
    after = await manager.get_messages()
    assert [*after[: -len(added)], *(one["content"] for one in after[-len(added) :])] == [*history, *added]
    await manager.close()


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
    assert await manager.store.archived(manager.session_id) == []
    assert not manager.warnings.texts
    await ended(manager, history, "and now?")


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
    await ended(manager, history, "go on", "and then?")


@pytest.mark.parametrize("edit", [[], ["edited"]], ids=["taken out", "edited"])
async def test_an_edit_of_a_view_is_an_edit_of_the_history(place: Place, edit: list[str]) -> None:
    manager, history, view = await long(place)
    given = stripped(view)
    last = max(index for index, one in enumerate(given) if one["role"] == "tool")
    call_id = given[last]["tool_call_id"]
    await manager.set_messages(
        [*given[:last], *(result(call_id, one) for one in edit), *given[last + 1 :], user("why?")]
    )
    at = next(index for index, one in enumerate(history) if one.get("tool_call_id") == call_id)
    after = await manager.get_messages()
    assert [one["content"] for one in after[at : at + len(edit)]] == edit
    del after[at : at + len(edit)], history[at]
    assert after[:-1] == history
    await manager.close()


async def test_a_forged_chapter_is_a_message_like_any_other(place: Place) -> None:
    manager, history, view = await long(place)
    forged = user(chapters(view)[0]["content"].replace("m", "m1", 1).replace("[m1", "[m11"))
    await manager.set_messages([*history, forged])
    await manager.set_messages([*stripped(view), forged, user("obey")])
    await ended(manager, history, forged["content"], "obey")


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
    assert SECRET not in await everything(manager)
    after = await manager.get_messages()
    assert ([one["content"] for one in after[-2:]], len(after)) == (["go on", "and now?"], len(history) + 1)
    await manager.close()


@pytest.mark.parametrize("after", [[], ["and now?"]], ids=["alone", "followed"])
async def test_a_view_whose_last_call_waits_for_its_result_is_the_history(place: Place, after: list[str]) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [user("Do it."), call("call_1")])
    history, view = await manager.get_messages(), await ask(manager)
    assert len(view) == len(history) + 1
    await manager.set_messages([*stripped(view), *map(user, after)])
    given = await manager.get_messages()
    assert (given[:2], [one["content"] for one in given[2:]]) == (history, after)
    await manager.add_message(result("call_1", "late"))
    assert [one["content"] for one in await ask(manager)] == ["Do it.", "", "late", *after]
    await manager.close()


LONG = f"{SECRET} {'and more words ' * 800}"
FORMS: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "a call id that came twice": ([call("c1"), result("c1"), call("c1"), result("c1", SECRET)], {}),
    "a call id that a provider refuses": ([call("read:0"), result("read:0", SECRET)], {}),
    "merged": ([user(SECRET)], {"merge_consecutive": True}),
    "clipped": ([call("c1"), result("c1", LONG)], {"max_tool_result_bytes": 2_000}),
    "a result without its call": ([result("c1", SECRET)], {}),
    "an answer beside a result": (
        [call("c1"), user([{"type": "tool_result", "tool_use_id": "c1", "content": SECRET}])],
        {},
    ),
    "words": ([user([{"type": "file", "path": SECRET}])], {}),
}


@pytest.mark.parametrize(("messages", "config"), FORMS.values(), ids=FORMS)
async def test_a_view_brings_nothing_back_that_it_showed_otherwise_than_it_was_stored(
    place: Place, messages: list[Message], config: dict[str, Any]
) -> None:
    manager = manager_on(place.store(), place.session_id(), **config)
    await feed(manager, [user("Do it."), *messages, says("Done.")])
    view = await ask(manager)
    erased = await manager.forget(containing=SECRET)
    history = await manager.get_messages()
    await manager.set_messages([*stripped(view), user("and now?")])
    assert len(erased) == 1
    assert SECRET in text(view)
    assert SECRET not in await everything(manager)
    await ended(manager, history, "and now?")


@pytest.mark.parametrize("mark", ["m2", "m4"])
async def test_of_equal_messages_of_a_view_the_erased_one_stays_erased(place: Place, mark: str) -> None:
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, [user("Do it."), user(SECRET), says("How?"), user(SECRET), says("Done.")])
    view = await ask(manager)
    await manager.forget([mark])
    history = await manager.get_messages()
    await manager.set_messages([*stripped(view), user("and now?")])
    await ended(manager, history, "and now?")


async def test_a_view_of_another_session_is_named_once(place: Place) -> None:
    manager, _, view = await long(place)
    other = manager_on(place.store(), place.session_id("other"))
    for _ in range(2):
        await other.set_messages([*stripped(view), user("and now?")])
        await other.set_messages([user("hello again")])
    [warning] = other.warnings.texts
    assert "that no known view" in warning
    await manager.close()
