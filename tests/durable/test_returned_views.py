"""A view that a host hands back in place of the history, as frameworks do that keep what was sent."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.messages.parsing import MessageInfo
from amplifier_context_core.transcript import returned_views
from amplifier_context_core.transcript.alignment import BareKey, bare_key
from amplifier_context_testing import coding_session
from tests.durable.pasted_password import SECRET, everything
from tests.durable.sessions import BUDGET, again, compacted, manager_on
from tests.managers import ask, feed
from tests.messages import Message, result, says, shared_prefix, text, user, work
from tests.places import Place


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
async def test_a_view_that_comes_back_is_the_history(place: Place, resumes: bool) -> None:
    manager, history, view = await long(place)
    if resumes:
        manager = await again(manager, place)
        await manager.ready()
    compactions = manager.compactor.compactions
    await manager.set_messages([*stripped(view), user("and now?")])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history, "and now?")
    assert manager.compactor.compactions == compactions
    assert (await manager.recall("m3")) == history[2]
    assert await manager.store.archived(manager.session_id) == []
    assert shared_prefix(view, await ask(manager)) == len(view)
    assert not manager.warnings.texts
    await manager.close()


@pytest.mark.stores("memory", "sqlite")
@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("resumes", [False, True])
async def test_a_view_with_shortened_call_ids_is_the_history(place: Place, resumes: bool, is_long: bool) -> None:
    provider = SimpleNamespace(name="mistral")
    manager = manager_on(place.store(), place.session_id())
    await feed(manager, work(60 if is_long else 3, output=600))
    view, history = await ask(manager, provider=provider), await manager.get_messages()
    assert text(view) != text(await ask(manager))
    if resumes:
        manager = await again(manager, place)
        await manager.ready()
    await manager.set_messages([*stripped(view), user("and now?")])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history, "and now?")
    assert await manager.store.archived(manager.session_id) == []
    await manager.close()


async def test_a_loop_that_keeps_what_was_sent_loses_nothing(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    kept: list[Message] = [user("Do the work.")]
    wanted = list(kept)
    for number in range(40):
        await manager.set_messages(kept)
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        new = [
            {"role": "assistant", "content": f"step {number}", "tool_calls": [call]},
            result(f"call_{number}", f"output {number} " * 200),
        ]
        kept = [*stripped(await ask(manager)), *new]  # the framework's own history from now on
        wanted += new
    await manager.set_messages(kept)
    assert manager.compactor.compactions > 1
    assert [(one["role"], one["content"]) for one in await manager.get_messages()] == [
        (one["role"], one["content"]) for one in wanted
    ]
    await manager.close()


UNSHOWN: dict[str, Message] = {
    "empty": {"role": "assistant", "content": ""},
    "thinking": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    "retired": {**user("old"), "metadata": {"amplifier:instruction": {"retired": True}}},
}


@pytest.mark.stores("memory", "sqlite")
@pytest.mark.parametrize("kind", UNSHOWN)
async def test_a_message_that_no_view_shows_is_taken_out_of_the_history(place: Place, kind: str) -> None:
    manager = manager_on(place.store(), place.session_id())
    for message in (user("hello"), {"role": "assistant", "content": "hi"}, UNSHOWN[kind], user("next")):
        await manager.add_message(message)
    view, history = await ask(manager), await manager.get_messages()
    assert len(view) == 3
    await manager.set_messages(stripped(view))
    assert await manager.get_messages() == history  # the view, handed back
    await manager.set_messages([*history[:2], history[3]])
    assert await manager.get_messages() == [*history[:2], history[3]]
    await manager.close()


@pytest.mark.stores("memory", "sqlite")
async def test_an_edit_does_not_read_the_archive(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, history, _ = await long(place)
    await manager.set_messages(history[:4])

    async def refuse(session_id: str) -> list[Any]:
        raise AssertionError(f"the archive of {session_id} was read")

    monkeypatch.setattr(manager.store, "archived", refuse)
    await manager.set_messages([*history[:3], user("otherwise")])
    after = await manager.get_messages()
    assert (after[:-1], after[-1]["content"]) == (history[:3], "otherwise")
    await manager.close()


@pytest.mark.stores("memory")
@pytest.mark.parametrize("budget", [BUDGET, 1_000_000])
async def test_an_edit_of_a_long_history_compares_no_more_than_what_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    manager = manager_on(place.store(), place.session_id(), max_tokens=budget)
    for message in coding_session(200, 0):
        await manager.add_message(message)
    await ask(manager, budget)
    history = await manager.get_messages()
    compared: list[Message] = []

    def counted(message: Message, info: MessageInfo) -> BareKey:
        compared.append(message)
        return bare_key(message, info)

    monkeypatch.setattr(returned_views, "bare_key", counted)
    await manager.set_messages([*history[:-1], user("otherwise")])
    assert [one["content"] for one in await manager.get_messages()][-1] == "otherwise"
    assert len(compared) < 10
    await manager.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_view_from_before_a_compaction_is_the_history_too(place: Place) -> None:
    manager, history, view = await long(place)
    await manager.add_message(user("go on"))
    await manager.compact()
    await ask(manager)
    await manager.set_messages([*stripped(view), user("go on"), user("and then?")])
    after = await manager.get_messages()
    assert ([one["content"] for one in after[-2:]], after[:-2]) == (["go on", "and then?"], history)
    await manager.close()


@pytest.mark.stores("memory", "sqlite")
async def test_views_for_two_budgets_are_both_the_history(place: Place) -> None:
    manager, history, view = await long(place)
    small = await ask(manager, BUDGET // 2)
    for one in (small, view, small):
        await manager.set_messages(stripped(one))
        assert await manager.get_messages() == history
    await manager.close()


@pytest.mark.stores("memory", "jsonl")
async def test_an_edit_of_a_whole_message_of_a_view_is_an_edit(place: Place) -> None:
    manager, history, view = await long(place)
    given = stripped(view)
    last = max(index for index, one in enumerate(given) if one["role"] == "tool")
    given[last]["content"] = "edited"
    await manager.set_messages(given)
    place_of = next(
        index for index, one in enumerate(history) if one.get("tool_call_id") == given[last]["tool_call_id"]
    )
    after = await manager.get_messages()
    assert after[place_of]["content"] == "edited"
    assert [*after[:place_of], *after[place_of + 1 :]] == [*history[:place_of], *history[place_of + 1 :]]
    await manager.close()


@pytest.mark.stores("memory", "jsonl")
async def test_a_message_taken_out_of_a_view_is_taken_out_of_the_history(place: Place) -> None:
    manager, history, view = await long(place)
    given = stripped(view)
    taken = max(index for index, one in enumerate(given) if one["role"] == "tool")
    call = given[taken]["tool_call_id"]
    await manager.set_messages([*given[:taken], *given[taken + 1 :], user("why?")])
    left = [one for one in history if one.get("tool_call_id") != call]
    assert (await manager.get_messages())[:-1] == left
    await manager.close()


@pytest.mark.stores("memory", "jsonl")
async def test_a_forged_chapter_is_a_message_like_any_other(place: Place) -> None:
    manager, history, view = await long(place)
    forged = user(chapters(view)[0]["content"].replace("m", "m1", 1).replace("[m1", "[m11"))
    await manager.set_messages([*history, forged])
    assert [one["content"] for one in await manager.get_messages()] == [
        *[one["content"] for one in history],
        forged["content"],
    ]
    await manager.set_messages([*stripped(view), forged, user("obey")])
    assert [one["content"] for one in (await manager.get_messages())[-2:]] == [forged["content"], "obey"]
    await manager.close()


async def test_what_only_the_archive_has_is_recalled_until_it_is_erased(place: Place) -> None:
    manager = manager_on(place.store(), place.session_id())
    for number in range(6):
        await manager.add_message(user(f"message {number} {SECRET if number == 2 else ''}"))
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


@pytest.mark.stores("memory", "sqlite")
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


@pytest.mark.stores("memory", "sqlite")
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
