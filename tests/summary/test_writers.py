"""A session with each kind of model that writes summaries, and with each kind that does not."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager, count_tokens, load_config
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing import EventRecorder, checked, coding_session
from amplifier_context_testing.summaries import asked
from tests.messages import says, user
from tests.summary.scripted import BUDGET, OFTEN, summary_manager
from tests.timers import timers_of
from tests.writers import CLAIMED_TASK, FAILING, INJECTED_RULE, INVENTED_FILE, INVENTED_QUOTE, Writer

pytestmark = pytest.mark.kernel
TASK = "amplifier-context-summary"  # what the manager names its background task
CONFIG: dict[str, Any] = {"token_counter": "heuristic", "max_tokens": BUDGET, **OFTEN}
RULE = "Never touch the generated files in build/out."
FIRST = [user(f"Rename the module. {RULE}"), says("I think that all of it is done."), user("It is not. Go on.")]


@dataclass
class Course:
    """What happened in a session: its views as they would go over the wire, and events of summaries.

    Attributes:
        timers: how often each request waited for something with a time limit, such as a handler of an event.
        asked: numbers of the requests after which a model was asked.
        explained: what `explain` returned at the end, before the session was closed.
    """

    views: list[str] = field(default_factory=list[str])
    events: EventRecorder = field(default_factory=EventRecorder)
    timers: list[int] = field(default_factory=list[int])
    asked: list[int] = field(default_factory=list[int])
    explained: dict[str, Any] = field(default_factory=dict[str, Any])


async def course(writer: Writer | None, *, messages: int = 60, **config: Any) -> Course:
    """Replay a session, with a view before each answer of the agent; without a writer its chapters are the digest's.

    A slow writer answers after the last request.
    """
    done, hooks = Course(), HookRegistry()
    done.events.attach(hooks, EVENTS)
    manager: Any = ContextManager(load_config(CONFIG), hooks=hooks)
    if writer:
        manager = summary_manager(writer, hooks=hooks, **CONFIG, **config)
    for message in [*FIRST, *list(coding_session(messages, seed=7))[1:]]:
        if message["role"] == "assistant":
            calls = len(writer.asked) if writer else 0
            with timers_of(asyncio.current_task()) as timers:
                view = checked(await manager.get_messages_for_request())
            assert count_tokens(view) <= BUDGET
            done.views.append(json.dumps(view, ensure_ascii=False))
            done.timers.append(len(timers))
            while writer and manager.writer.is_running and not writer.pending:
                await asyncio.sleep(0.001)
            done.asked += [len(done.views)] if writer and len(writer.asked) > calls else []
        await manager.add_message(message)
    if writer and writer.kind == "slow":
        assert "context:summary_finished" not in done.events.names()
        writer.release.set()
        await manager.writer.wait(30)
    assert manager.compactor.compactions >= 3
    done.explained = await manager.explain()
    await manager.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(TASK)]
    return done


@pytest.fixture(scope="module")
def digest() -> Course:
    return asyncio.run(course(None))


@pytest.mark.parametrize("kind", [*(kind for kind in FAILING if ":" not in kind), "slow", "error:RateLimitError"])
async def test_without_a_summary_in_time_views_are_the_digests_and_no_request_waits(kind: str, digest: Course) -> None:
    writer = Writer(kind)
    done = await course(writer)
    assert writer.asked
    assert done.views == digest.views
    assert done.timers == digest.timers
    assert done.events.count("context:summary_finished") == (kind == "slow")
    assert kind != "never" or (len(writer.asked), writer.answered, writer.cancelled) == (1, 0, 1)


async def test_a_good_summary_is_in_the_chapters_beside_the_digests_index(digest: Course) -> None:
    writer = Writer("good")
    done = await course(writer)
    assert done.events.count("context:summary_finished") == writer.answered >= 2
    assert done.events.count("context:summary_failed") == 0
    assert done.views != digest.views
    assert done.timers == digest.timers
    assert "Wants: Rename the module." in str(done.views)
    assert all(RULE in view for view, plain in zip(done.views, digest.views, strict=True) if RULE in plain)
    assert RULE in done.views[-1]
    chapters = done.explained["summary"]["chapters"]
    written = [chapter for chapter in chapters if chapter["writer"] == "writer-good"]
    assert written
    assert all(chapter["cost"] > 0 and chapter["messages_since"] > 0 for chapter in written)


async def test_a_call_beyond_its_time_limit_is_cancelled() -> None:
    writer = Writer("never")
    done = await course(writer, summary_timeout=0.001)
    assert writer.cancelled == len(writer.asked) >= 1
    assert {data["reason"] for data in done.events.named("context:summary_failed")} == {"timeout"}


@pytest.mark.parametrize(
    ("kind", "invented"),
    [
        ("inventing", (INVENTED_QUOTE, INVENTED_FILE, "m999999")),
        ("claiming", (CLAIMED_TASK, "Write the changelog.")),  # the latter is open, and newer rounds were folded
        ("forging", (INJECTED_RULE, "\\n[system]")),
        ("oversized", ()),
    ],
)
async def test_what_a_model_invents_claims_or_forges_reaches_no_view(kind: str, invented: tuple[str, ...]) -> None:
    writer = Writer(kind)
    done = await course(writer)
    assert writer.answered
    assert [one for one in invented if one in str(done.views)] == []
    for view in done.views:
        assert view.count("<context_record>") == view.count("</context_record>")


@pytest.mark.soak
async def test_the_money_is_spread_over_the_session_and_each_range_has_a_quarter_of_the_threshold() -> None:
    """A first call takes no more than what the session has earned, so that later ones are not starved by it."""
    writer = Writer("good")
    done = await course(writer, messages=240, summary_spend=0.3)
    said = [*FIRST, *list(coding_session(240, seed=7))[1:]]  # m1 is the first
    spans = [(int(one.first[1:]), int(one.last[1:])) for request in writer.asked if (one := asked(request))]
    assert min(count_tokens(said[first - 1 : last]) for first, last in spans) >= 0.92 * BUDGET / 4
    assert len(done.asked) >= 3
    assert done.asked[-1] > 0.6 * len(done.views)
    for data in done.events.named("context:summary_finished"):
        assert data["summary_cost"] <= 0.31 * data["session_cost"], "the last call may cost more than was expected"
