"""The state persists with the session: resumed, forked, edited, erased, and a process that ends in the middle."""

import json
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import MemoryStore
from tests.messages import digest, rounds, text, work
from tests.places import Place
from tests.summary.scripted import (
    SESSION,
    WORDS,
    Provider,
    drive,
    good,
    opened,
    summary_manager,
    view_of,
    wait_for_summaries,
)
from tests.writers import Writer

pytestmark = pytest.mark.kernel


def opened_without_model(place: Place) -> ContextManager:
    """The session as a manager opens it that knows no summaries."""
    config = load_config({"token_counter": "heuristic"})
    return ContextManager(config, session_id=place.session_id(), store=place.store())


async def kept(place: Place, provider: Any, **config: Any) -> Any:
    """A session that was summarised, still open."""
    manager = opened(place, provider, **config)
    views = await drive(manager, SESSION)
    assert WORDS in text(views[-1])
    return manager


async def test_a_resumed_session_shows_the_same_view_and_asks_nothing_again(place: Place) -> None:
    manager = await kept(place, Provider(good))
    before = await view_of(manager)
    records = manager.records.valid()
    await manager.close()
    provider = Provider(good)
    again = opened(place, provider)
    assert digest(await view_of(again)) == digest(before)
    await wait_for_summaries(again)
    assert again.records.valid() == records
    assert provider.requests == []
    await again.close()


async def test_forget_erases_from_state_and_chapters(place: Place) -> None:
    manager = opened(place, Provider(good))
    secret = "hunter2-very-secret"
    session = [*work(4, output=900), {"role": "user", "content": f"The password is {secret}."}]
    await drive(manager, [*session, *rounds(50, start=50, output=900)])
    assert secret in str(manager.state(0)) or secret in text(await view_of(manager))
    erased = await manager.forget(containing=secret)
    assert erased == ["m10"]
    assert secret not in str(manager.state(0))
    assert secret not in text(await view_of(manager))
    assert all(record.upto < 10 for record in manager.records._records)
    await manager.close()
    again = opened(place, None)
    assert secret not in text(await view_of(again))
    assert secret not in str(again.state(0))
    await again.close()


async def test_an_edit_of_a_summarised_message_drops_the_state_that_derives_from_it(place: Place) -> None:
    manager = await kept(place, Provider(good))
    messages = await manager.get_messages()
    messages[4] = {**messages[4], "content": "something else"}
    await manager.set_messages(messages)
    assert manager.records.valid() == []
    await manager.close()


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_compact_waits_for_the_model_and_reports_what_the_next_turn_will_know(
    is_resumed: bool, place: Place
) -> None:
    provider = Provider(good)
    manager = opened(place, provider)
    await drive(manager, SESSION[:27])
    if is_resumed:
        await manager.close()
        manager = opened(place, provider)
    report = await manager.compact("the parser")
    assert report["compacted"]
    assert report["author"] == "summary"
    assert WORDS in report["chapter"]
    assert "dwell on this: the parser" in provider.text()
    assert report["chapter"] in [message["content"] for message in await view_of(manager)]
    await manager.close()


async def test_what_handlers_of_a_compaction_inject_reaches_the_summaries_after_it(place: Place) -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="Keep the ticket numbers.")

    hooks = HookRegistry()
    hooks.register("context:pre_compact", inject, 0, name="inject")
    provider = Provider(good)
    manager = opened(place, provider, hooks=hooks)
    await drive(manager, SESSION[:41])
    assert manager.compactor.compactions == 1
    await manager.close()
    assert "dwell on this" not in provider.text()
    provider = Provider(good)
    manager = opened(place, provider)
    await drive(manager, SESSION[41:55])
    assert "dwell on this: Keep the ticket numbers." in provider.text(0)
    await manager.compact("the parser")
    await drive(manager, rounds(40, start=100, output=900))
    assert provider.text().endswith("dwell on this: the parser")
    await manager.close()


async def test_compact_takes_the_digest_when_the_model_is_too_slow() -> None:
    writer = Writer("slow")
    manager = summary_manager(writer, compact_wait=0.01)
    await drive(manager, SESSION[:27], waits=False)
    report = await manager.compact()
    assert report["compacted"]
    assert report["author"] == "digest"


async def test_a_manager_without_a_model_keeps_the_state_until_the_history_is_edited(place: Place) -> None:
    manager = await kept(place, Provider(good))
    state = manager.state(0)
    await manager.close()
    other = opened_without_model(place)
    await other.add_message({"role": "user", "content": "Go on."})
    await other.close()
    again = opened(place, None)
    await again.get_messages()
    assert again.state(0) == state
    await again.close()
    other = opened_without_model(place)
    assert await other.forget(["m5"]) == ["m5"]
    await other.close()
    again = opened(place, None)
    await again.get_messages()
    assert again.state(0)["context-summary"]["records"] == []
    await again.close()


# -- records of a session that is resumed, whose older entries are not loaded ------------------------------------------


async def closed(store: MemoryStore) -> Any:
    """A session that was summarised."""
    manager = summary_manager(Provider(good), store=store)
    await drive(manager, SESSION)
    await manager.close()
    return manager


async def changed_state(store: MemoryStore, change: Any) -> None:
    """Change what a session saved of its summaries."""
    saved = json.loads(await store.load_checkpoint("s") or b"")
    saved["extra"]["context-summary"] = change(saved["extra"]["context-summary"])
    await store.save_checkpoint("s", len(await store.read("s")), json.dumps(saved).encode())


async def test_a_resumed_session_keeps_the_records_of_entries_that_are_as_they_were_though_not_loaded() -> None:
    store = MemoryStore()
    manager = await closed(store)
    kept = manager.records.valid()
    covered = manager.compactor.last_sent.view.checkpoint.covered
    assert kept[-1].start < covered, "the record begins in what a resumed session does not load"
    assert kept[-1].covered > covered, "and ends in what it loads"
    again = summary_manager(None, store=store)
    await again.ready()
    assert await again.records.verified() == kept
    assert again.history.snapshot().gap, "nothing was loaded for it"
    await again.close()
    entries = await store.read("s")
    await store.replace("s", covered + 1, entries[covered + 2 :])  # by another program: no round has lost its call
    again = summary_manager(None, store=store)
    await again.ready()
    assert again.history.snapshot().gap
    assert kept[-1] not in await again.records.verified()


@pytest.mark.parametrize("odd", [[1], "text", {"records": "nonsense"}])
async def test_a_session_whose_summary_state_is_of_no_use_opens_with_a_warning(odd: Any) -> None:
    store = MemoryStore()
    await closed(store)
    await changed_state(store, lambda _: odd)
    again = summary_manager(None, store=store)
    assert len(await view_of(again)) > 1
    assert "cannot be read" in str(again.warnings.texts)


async def test_a_session_that_was_saved_with_a_summary_state_opens_with_its_view() -> None:
    """As sessions were saved until each answer was the whole text (version 2 of the records)."""
    store = MemoryStore()
    manager = await closed(store)
    before = await view_of(summary_manager(None, store=store))
    assert WORDS in text(before)

    def former(state: dict[str, Any]) -> dict[str, Any]:
        records = [{"state" if key == "text" else key: one[key] for key in one} for one in state["records"]]
        return {**state, "version": 2, "records": records}

    await changed_state(store, former)
    again = summary_manager(None, store=store)
    assert digest(await view_of(again)) == digest(before)
    assert again.limits.calls == manager.limits.calls
    assert "cannot be read" in str(again.warnings.texts)
