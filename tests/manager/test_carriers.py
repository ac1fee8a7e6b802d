"""A provider's own compaction in the views of a session whose models change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_core.session.host import Host
from amplifier_context_testing import check_request
from tests.manager.measured import Counting, settings
from tests.managers import feed, new_manager
from tests.messages import call, result, rounds, user, work

Message = dict[str, Any]

READER = SimpleNamespace(name="anthropic", default_model="claude-opus-5")
OTHER = SimpleNamespace(name="openai", default_model="gpt-5.6")
BUDGET = 3_000


def carrier() -> Message:
    block = {"type": "compaction", "content": "We read ten files.", "signature": "c2ln"}
    state = {"version": 1, "model": "claude-opus-5", "block": block}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", "anthropic:compaction": state}
    return {"role": "user", "content": "Native compacted conversation.", "metadata": marks}


async def read(manager: ContextManager, numbers: range, provider: Any) -> list[Message]:
    """Rounds of a loop, and the request after them."""
    for number in numbers:
        calls = call(f"c-{number}", path=f"src/a{number}.py", content=f"Step {number}.")
        await feed(manager, [calls, result(f"c-{number}", f"def f{number}(): ...\n" * 20)])
        await manager.get_messages_for_request(BUDGET, provider)
    return await manager.get_messages_for_request(BUDGET, provider)


async def test_a_result_that_comes_after_it_is_sent_with_its_call_after_it() -> None:
    manager = await feed(new_manager(), [user("Fix the loader."), call("late")])
    await read(manager, range(4), READER)
    await feed(manager, [carrier(), result("late", "the file")])
    view = await manager.get_messages_for_request(BUDGET, READER)
    assert view[0] == carrier()
    assert [message["role"] for message in view[1:]] == ["assistant", "tool"]
    await read(manager, range(4, 60), OTHER)
    assert manager.compactor.compactions
    again = await manager.get_messages_for_request(BUDGET, READER)
    assert again[:3] == view, "a compaction for another model folds no part of it"


async def test_a_compaction_of_a_range_reports_what_is_sent() -> None:
    manager = new_manager(max_tokens=20_000, target_usage=0.4)
    await feed(manager, [*work(20), carrier(), *rounds(80, start=20)])
    await manager.get_messages_for_request(None, READER)
    report = await manager.compact(first="m120")
    assert report["compacted"]
    await manager.get_messages_for_request(None, READER)
    assert report["after_tokens"] == (await manager.usage())["used"] < report["before_tokens"]


async def test_without_originals_another_model_gets_the_words_in_it() -> None:
    manager = await feed(new_manager(), [carrier(), user("Go on.")])
    view = await manager.get_messages_for_request(BUDGET, OTHER)
    assert "We read ten files." in view[0]["content"]
    assert "anthropic:compaction" not in view[0]["metadata"]
    assert (await manager.get_messages_for_request(BUDGET, READER))[0] == carrier()


def reminder(text: str) -> Message:
    marks = {"ephemeral": True, "persisted": True, "source": "hook"}
    return {"role": "user", "content": f"<system-reminder>{text}</system-reminder>", "metadata": marks}


async def carried() -> ContextManager:
    """A session whose reminder in force is older than a provider's own compaction."""
    manager = await feed(new_manager(**settings(max_tokens=BUDGET)), [user("Fix the loader."), reminder("three todos")])
    await read(manager, range(6), READER)
    return await feed(manager, [carrier(), user("Go on.")])


async def test_a_text_that_a_measured_request_retains_is_sent_after_the_compaction_that_is_newer() -> None:
    manager = await carried()
    retained = [reminder("three todos")["content"]]
    for number in range(6, 60, 9):  # until chapters are folded
        result = await manager.measured_request_view(
            provider=READER, retain_contents=retained, count_view=Counting(ratio=1.0)
        )
        view = result["base_view"]
        assert await result["transaction"].commit()
        assert check_request(view) == []
        assert view[:2] == [carrier(), reminder("three todos")]
        assert [message["content"] for message in view].count(retained[0]) == 1
        assert "Fix the loader." not in str(view)
        sent = manager.compactor.last_sent
        assert sent is not None
        assert sent.counted == sum(shown.tokens for shown in (*sent.system, *sent.messages))
        assert retained[0] not in str(await read(manager, range(number, number + 9), READER)), "others leave it out"
    assert manager.compactor.compactions


class Jobs(Host):
    def active_operations(self) -> object:
        return [{"call_id": "c-3"}]


async def test_the_call_of_a_job_that_still_runs_is_sent_after_the_compaction_that_is_newer() -> None:
    manager = await carried()
    manager.requests.host = Jobs()
    view = await manager.get_messages_for_request(BUDGET, READER)
    assert check_request(view) == []
    assert [one for one in ("c-2", "c-3", "c-4") if one in str(view)] == ["c-3"]
