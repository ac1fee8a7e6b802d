"""The state persists with the session: resumed, forked, edited, erased, and a process that ends in the middle."""

import copy
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import MemoryStore
from tests.messages import digest, rounds, text, user, work
from tests.places import Place
from tests.summary.scripted import SESSION, WORDS, Provider, drive, good, opened, summary_manager, view_of
from tests.writers import Writer

pytestmark = pytest.mark.kernel


async def kept(place: Place) -> Any:
    manager = opened(place, Provider(good))
    views = await drive(manager, SESSION)
    assert WORDS in text(views[-1])
    return manager


async def state_of(place: Place) -> Any:
    """What is saved of summaries, as another process reads it."""
    again = opened(place, None)
    await again.get_messages()
    state = again.state(0)["context-summary"]
    await again.close()
    return state


async def test_a_resumed_session_shows_the_same_view_and_asks_nothing_again(place: Place) -> None:
    manager, provider = await kept(place), Provider(good)
    before, records = await view_of(manager), manager.records.valid()
    await manager.close()
    again = opened(place, provider)
    assert digest(await view_of(again)) == digest(before)
    await again.writer.wait(30)
    assert again.records.valid() == records
    assert provider.requests == []
    await again.close()


async def test_what_a_model_wrote_is_stored_at_once_and_not_asked_again_after_a_kill() -> None:
    store, provider = MemoryStore(), Provider(good)
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, SESSION)
    again = summary_manager(provider, store=copy.deepcopy(store))  # it was not closed
    await view_of(again)
    await again.writer.wait(30)
    assert await again.records.verified() == manager.records.valid() != []
    assert provider.requests == []


async def test_forget_erases_from_state_and_chapters(place: Place) -> None:
    manager = opened(place, Provider(good))
    secret = "hunter2-very-secret"
    await drive(manager, [*work(4, output=900), user(f"The password is {secret}."), *rounds(50, start=50, output=900)])
    assert secret in str((manager.state(0), await view_of(manager)))
    assert await manager.forget(containing=secret) == ["m10"]
    assert secret not in str((manager.state(0), await view_of(manager)))
    assert all(record.upto < 10 for record in manager.records._records)
    await manager.close()
    again = opened(place, None)
    assert secret not in str((await view_of(again), again.state(0)))
    await again.close()


async def test_an_edit_of_a_summarised_message_drops_the_state_that_derives_from_it(place: Place) -> None:
    manager = await kept(place)
    messages = await manager.get_messages()
    messages[4] = {**messages[4], "content": "something else"}
    await manager.set_messages(messages)
    assert manager.records.valid() == []
    await manager.close()


async def test_compact_waits_for_the_model_and_reports_what_the_next_turn_will_know(place: Place) -> None:
    slow = summary_manager(Writer("slow"), compact_wait=0.01)
    await drive(slow, SESSION[:27], waits=False)
    assert (await slow.compact())["author"] == "digest", "it waits no longer than the config says"
    provider = Provider(good)
    manager = opened(place, provider)
    await drive(manager, SESSION[:27])
    await manager.close()
    manager = opened(place, provider)
    report = await manager.compact("the parser")
    assert report["author"] == "summary"
    assert WORDS in report["chapter"]
    assert "dwell on this: the parser" in provider.text()
    assert report["chapter"] in [message["content"] for message in await view_of(manager)]
    await manager.close()


async def test_what_handlers_of_a_compaction_inject_reaches_the_summaries_after_it(place: Place) -> None:
    injecting, provider = (
        HookResult(action="inject_context", context_injection="Keep the ticket numbers."),
        Provider(good),
    )
    hooks = HookRegistry()
    hooks.register("context:pre_compact", AsyncMock(return_value=injecting), 0, name="inject")
    manager = opened(place, provider, hooks=hooks)
    await drive(manager, SESSION[:41])
    await manager.close()
    assert "dwell on this" not in provider.text()
    manager = opened(place, provider)
    await drive(manager, SESSION[41:55])
    assert "dwell on this: Keep the ticket numbers." in provider.text()
    await manager.close()


async def test_a_manager_without_a_model_keeps_the_state_until_the_history_is_edited(place: Place) -> None:
    def opened_without_model() -> ContextManager:
        config = load_config({"token_counter": "heuristic"})
        return ContextManager(config, session_id=place.session_id(), store=place.store())

    await (await kept(place)).close()
    state = await state_of(place)
    other = opened_without_model()
    await other.add_message(user("Go on."))
    await other.close()
    assert await state_of(place) == state
    other = opened_without_model()
    assert await other.forget(["m5"]) == ["m5"]
    await other.close()
    assert (await state_of(place))["records"] == []


async def test_a_resumed_session_keeps_the_records_of_entries_that_are_as_they_were_though_not_loaded() -> None:
    store = MemoryStore()
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, SESSION)
    await manager.close()
    kept = manager.records.valid()
    covered = manager.compactor.last_sent.view.checkpoint.covered
    assert kept[-1].start < covered < kept[-1].covered, "a resumed session loads the end of its range alone"
    again = summary_manager(None, store=store)
    await again.ready()
    assert await again.records.verified() == kept
    assert again.history.snapshot().gap, "nothing was loaded for it"
    await again.close()
    entries = await store.read("s")
    await store.replace("s", covered + 1, entries[covered + 2 :])  # by another program: no round has lost its call
    again = summary_manager(None, store=store)
    await again.ready()
    assert kept[-1] not in await again.records.verified()


def of_version_2(state: dict[str, Any]) -> Any:
    """The state as it was saved until each answer was the whole text."""
    records = [{"state" if key == "text" else key: one[key] for key in one} for one in state["records"]]
    return {**state, "version": 2, "records": records}


@pytest.mark.parametrize("change", [of_version_2, lambda _: [1], lambda _: {"records": "nonsense"}])
async def test_a_useless_summary_state_is_left_out(place: Place, change: Callable[[dict[str, Any]], Any]) -> None:
    manager, store, name = await kept(place), place.store(), place.session_id()
    before = await view_of(manager)
    await manager.close()
    saved = json.loads(await store.load_checkpoint(name) or b"")
    saved["extra"]["context-summary"] = change(saved["extra"]["context-summary"])
    await store.save_checkpoint(name, len(await store.read(name)), json.dumps(saved).encode())
    await store.close()
    again = opened(place, None)
    assert digest(await view_of(again)) == digest(before)
    assert "cannot be read" in str(again.warnings.texts)
    assert again.limits.calls == (manager.limits.calls if change is of_version_2 else 0)
    await again.close()
