"""Views mark for a provider where a cached prefix may end: by metadata, which no model sees."""

from __future__ import annotations

import itertools
from typing import Any

from amplifier_context_core.messages.parsing import metadata_of
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, work

BUDGET = 8_000


class Provider:
    name = "bedrock-Claude"


def marked(view: list[Message]) -> list[int]:
    return [index for index, message in enumerate(view) if metadata_of(message).get("cache_breakpoint")]


def chapters(view: list[Message]) -> list[int]:
    return [index for index, message in enumerate(view) if "chapter" in metadata_of(message)]


def sent(view: list[Message]) -> list[Message]:
    """What goes over the wire."""
    return [{key: value for key, value in message.items() if key != "metadata"} for message in view]


async def grown(**config: Any) -> list[list[Message]]:
    """The views of a session with several compactions."""
    manager = await feed(new_manager(**config), work(1))
    views: list[list[Message]] = []
    for number in range(1, 120):
        await feed(manager, rounds(1, start=number, output=600))
        views.append(await ask(manager, BUDGET))
    return views


async def test_the_last_chapter_alone_asks_for_a_breakpoint_and_up_to_it_a_view_stays_through_a_compaction() -> None:
    views = await grown(chapter_share=0.9)
    assert max(len(chapters(view)) for view in views) > 1, "a session in which chapters follow each other"
    for view in views:
        assert marked(view) == chapters(view)[-1:]
    kept = 0
    for before, after in itertools.pairwise(views):
        if sent(after)[: len(before)] == sent(before):
            assert after[: len(before)] == before, "between compactions marks stay, too"
        elif marked(before):
            end = marked(before)[0] + 1
            kept += sent(after)[:end] == sent(before)[:end]
    assert kept > 0


async def test_a_view_without_any_metadata_marks_its_history_as_stable_for_provider_anthropic() -> None:
    """Without a word in any metadata it places no breakpoint in a conversation (docs/caching.md)."""
    manager = await feed(new_manager(), [{"role": "system", "content": "Be brief."}, *work(3)])
    view = await ask(manager, BUDGET, Provider())
    assert [message.get("metadata") for message in view[:3]] == [None, {"persisted": True}, None]
    assert all("metadata" not in message for message in await ask(manager, BUDGET))
    await manager.add_message({"role": "user", "content": "Do it.", "metadata": {"x": 1}})
    assert (await ask(manager, BUDGET, Provider()))[-1]["metadata"] == {"x": 1}
