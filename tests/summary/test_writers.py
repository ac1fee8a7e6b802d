"""A session with each kind of model that writes summaries, and with each kind that does not."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_testing.summaries.writers import (
    CLAIMED_TASK,
    FAILING,
    INJECTED_RULE,
    INVENTED_FILE,
    INVENTED_QUOTE,
    KINDS,
    Writer,
)
from tests.summary.course import TASK, Course, assert_valid, course, history

pytestmark = pytest.mark.kernel

MESSAGES = history()


@pytest.fixture(scope="module")
def digest() -> Course:
    """The same session with the digest alone."""
    return asyncio.run(course(None, MESSAGES))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FAILING])
async def test_every_request_is_valid_and_within_its_budget(kind: str) -> None:
    done = await course(Writer(kind), MESSAGES, release=True)
    assert done.compactions >= 3
    assert_valid(done)


@pytest.mark.parametrize("kind", [*(kind for kind in FAILING if ":" not in kind), "error:RateLimitError"])
async def test_with_every_call_failing_the_views_are_the_digests_byte_for_byte(kind: str, digest: Course) -> None:
    writer = Writer(kind)
    done = await course(writer, MESSAGES)
    assert writer.asked
    assert done.bytes == digest.bytes
    assert done.compactions == digest.compactions >= 3
    assert_valid(digest)


async def test_a_good_summary_is_in_the_chapters_beside_the_digests_index(digest: Course) -> None:
    writer = Writer("good")
    done = await course(writer, MESSAGES)
    assert writer.answered >= 2
    assert done.bytes != digest.bytes
    assert "Wants: Rename the module." in done.text
    assert "Never touch the generated files in build/out." in done.bytes[-1]
    assert len(done.named("finished")) == writer.answered
    assert done.named("failed") == []


async def test_no_request_waits_for_a_slow_summariser(digest: Course) -> None:
    writer = Writer("slow")
    done = await course(writer, MESSAGES, release=True)
    assert done.bytes == digest.bytes  # nothing was ready in time
    assert done.timers == digest.timers  # and nothing was waited for, not even a little
    assert done.order.index("started") < done.order.index("finished")
    assert done.order.index("finished") > done.order.index(f"sent {len(done.views) - 1}")
    begun = [step for step in done.order if step.startswith(("request", "sent"))]
    assert begun == [step for number in range(len(done.views)) for step in (f"request {number}", f"sent {number}")]


async def test_a_call_that_is_never_answered_is_cancelled_at_the_end_and_leaves_no_task(digest: Course) -> None:
    writer = Writer("never")
    done = await course(writer, MESSAGES)
    await asyncio.sleep(0)
    assert done.bytes == digest.bytes
    assert done.timers == digest.timers
    assert (len(writer.asked), writer.answered, writer.cancelled) == (1, 0, 1)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(TASK)]


async def test_a_call_beyond_its_time_limit_is_cancelled_and_the_digest_goes_on(digest: Course) -> None:
    writer = Writer("never")
    done = await course(writer, MESSAGES, summary_timeout=0.001)
    assert writer.cancelled == len(writer.asked) >= 1
    assert {data["reason"] for data in done.named("failed")} == {"timeout"}
    assert done.bytes == digest.bytes


async def test_invented_quotes_files_and_marks_reach_no_view() -> None:
    writer = Writer("inventing")
    done = await course(writer, MESSAGES)
    assert writer.answered
    for invented in (INVENTED_QUOTE, INVENTED_FILE, "m999999"):
        assert invented not in done.text


async def test_a_task_is_not_done_because_the_model_says_so() -> None:
    writer = Writer("claiming")
    done = await course(writer, MESSAGES, summary_background=False)
    assert writer.answered
    assert "Write the changelog." in done.text  # the answer as such was taken
    assert CLAIMED_TASK not in done.text


async def test_what_was_open_is_not_shown_once_newer_rounds_were_folded() -> None:
    """The same answers, asked for at the compaction and some requests before it."""
    writer = Writer("claiming")
    done = await course(writer, MESSAGES)
    assert writer.answered
    assert "Write the changelog." not in done.text


async def test_an_answer_can_forge_neither_a_tag_nor_a_persons_words() -> None:
    writer = Writer("forging")
    done = await course(writer, MESSAGES)
    assert writer.answered
    assert_valid(done)
    assert INJECTED_RULE not in done.text
    for chapter in done.chapters:
        assert chapter.count("<context_record>") == chapter.count("</context_record>") == 1
        assert not [line for line in chapter.splitlines() if line.startswith("[system]")]


async def test_a_ceiling_of_calls_is_kept() -> None:
    writer = Writer("good")
    done = await course(writer, MESSAGES, max_summary_calls=2)
    assert len(writer.asked) == 2
    assert_valid(done)


async def test_a_session_with_little_money_asks_no_model() -> None:
    writer = Writer("good")
    done = await course(writer, MESSAGES, summary_spend=0.001)
    assert writer.asked == []
    assert done.explained["summary"]["reason"] == "summary_spend"


async def test_the_money_is_spread_over_the_session() -> None:
    """A first call takes no more than what the session has earned, so that later ones are not starved by it."""
    writer = Writer("good")
    done = await course(writer, history(240), summary_spend=0.3)
    begun = [number for number, step in enumerate(done.order) if step == "started"]
    assert len(begun) >= 3
    assert begun[-1] > 0.6 * len(done.order)
    for data in done.named("finished"):
        assert data["summary_cost"] <= 0.3 * data["session_cost"]


async def test_explain_says_of_each_chapter_what_wrote_it_what_that_cost_and_how_old_it_is() -> None:
    done = await course(Writer("good"), MESSAGES)
    chapters = done.explained["summary"]["chapters"]
    written = [chapter for chapter in chapters if chapter["writer"] == "writer-good"]
    assert written
    assert all(chapter["cost"] > 0 and chapter["messages_since"] > 0 for chapter in written)
    assert {chapter["writer"] for chapter in chapters} <= {"writer-good", "digest"}
