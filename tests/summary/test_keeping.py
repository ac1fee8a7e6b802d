"""The state persists with the session: resumed, forked, edited, erased, and a process that ends in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, load_config
from tests.messages import digest, rounds, text, work
from tests.places import Place
from tests.summary.scripted import (
    BUDGET,
    SESSION,
    WORDS,
    Provider,
    drive,
    good,
    opened,
    summary_manager,
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
    before = await manager.get_messages_for_request(BUDGET)
    records = manager.records.valid()
    await manager.close()
    provider = Provider(good)
    again = opened(place, provider)
    assert digest(await again.get_messages_for_request(BUDGET)) == digest(before)
    await wait_for_summaries(again)
    assert again.records.valid() == records
    assert provider.requests == []
    await again.close()


async def test_forget_erases_from_state_and_chapters(place: Place) -> None:
    manager = opened(place, Provider(good))
    secret = "hunter2-very-secret"
    session = [*work(4, output=900), {"role": "user", "content": f"The password is {secret}."}]
    await drive(manager, [*session, *rounds(50, start=50, output=900)])
    assert secret in str(manager.state(0)) or secret in text(await manager.get_messages_for_request(BUDGET))
    erased = await manager.forget(containing=secret)
    assert erased == ["m10"]
    assert secret not in str(manager.state(0))
    assert secret not in text(await manager.get_messages_for_request(BUDGET))
    assert all(record.upto < 10 for record in manager.records._records)
    await manager.close()
    again = opened(place, None)
    assert secret not in text(await again.get_messages_for_request(BUDGET))
    assert secret not in str(again.state(0))
    await again.close()


async def test_an_edit_of_a_summarised_message_drops_the_state_that_derives_from_it(place: Place) -> None:
    manager = await kept(place, Provider(good))
    messages = await manager.get_messages()
    messages[4] = {**messages[4], "content": "something else"}
    await manager.set_messages(messages)
    assert manager.records.valid() == []
    await manager.close()


async def test_saved_state_that_cannot_be_read_is_left_out_with_a_warning(place: Place) -> None:
    manager = opened(place, Provider(good))
    manager.restore({"context-summary": {"records": "nonsense"}}, 0)
    assert manager.state(0)["context-summary"]["records"] == []
    assert "cannot be read" in str(manager.warnings.texts)


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
    assert report["chapter"] in [message["content"] for message in await manager.get_messages_for_request(BUDGET)]
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
    await manager.close()


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
