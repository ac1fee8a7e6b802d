"""What people can ask of a session's memory: compact, short forms of results, recall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.compaction.strategies import ClearToolOutputs, ClipToolOutputs, FoldRounds
from amplifier_context_core.stores.sqlite.store import SqliteStore
from tests.authors import make_manager
from tests.managers import Watch, ask, feed, new_manager
from tests.messages import bare, rounds, text, work

BUDGET = 4_000


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("search", {"query": "x", "limit": "5"}, "limit"),
        ("recall", {"mark": 5}, "mark"),
        ("pin", {"mark": "m1", "pinned": 0}, "pinned"),
        ("compact", {"focus": b""}, "focus"),
        ("forget", {"marks": ["m1", 5]}, r"marks\[1\]"),
        ("request_retention", {"retain_contents": "Go."}, "retain_contents"),
    ],
)
async def test_an_argument_of_another_type_is_an_error_that_names_it_and_changes_nothing(
    method: str, arguments: dict[str, Any], name: str
) -> None:
    manager = await feed(new_manager(), work(3))
    before = await manager.get_messages()
    with pytest.raises(ValueError, match=rf"^{name}: must be .*, got (str|bytes|int)$"):
        await getattr(manager, method)(**arguments)
    assert await manager.get_messages() == before
    assert not manager.compactor.pins


# -- compact -----------------------------------------------------------------------------------------------------------


async def test_compact_with_nothing_to_free_says_so() -> None:
    for messages in ([], [{"role": "user", "content": "Hi."}]):
        report = await (await feed(new_manager(), messages)).compact()
        assert report["compacted"] is False
        assert report["reason"]


async def test_the_focus_reaches_the_folder_now_and_later() -> None:
    watch = Watch()
    manager = await feed(new_manager(strategies=[watch, FoldRounds()]), work(60))
    await ask(manager, 8_000)
    await manager.compact("the ticket numbers")
    assert watch.goals[-1].focus == "the ticket numbers"
    await feed(manager, rounds(80, start=500))
    await ask(manager, 8_000)
    assert len(watch.goals) >= 2
    assert watch.goals[-1].focus == "the ticket numbers"


# -- summaries of results ----------------------------------------------------------------------------------------------


def clipping(**config: Any) -> ContextManager:
    """A manager whose ladder does nothing but clip and clear outputs."""
    return new_manager(strategies=[ClipToolOutputs(100), ClearToolOutputs(1)], **config)


async def test_a_summary_in_the_metadata_or_registered_by_call_id_takes_the_place_of_a_clip() -> None:
    messages = work(60)
    messages[2]["metadata"] = {"compact_summary": "FILE ZERO IN SHORT"}
    manager = await feed(clipping(), messages)
    await manager.compact_summary("call_3", "FILE THREE IN SHORT")
    view = await ask(manager, BUDGET)
    assert [view[2]["content"], view[8]["content"]] == ["FILE ZERO IN SHORT", "FILE THREE IN SHORT"]
    assert bare(await manager.get_messages()) == messages


async def test_a_summary_registered_after_the_result_was_clipped_is_used_at_the_next_compaction() -> None:
    manager = await feed(clipping(), work(60))
    await ask(manager, BUDGET)
    await manager.compact_summary("call_59", "THE LAST IN SHORT")
    await feed(manager, rounds(60, start=100))
    assert "THE LAST IN SHORT" in text(await ask(manager, BUDGET))


async def test_a_summary_registered_after_a_view_showed_the_result_waits_for_a_compaction() -> None:
    manager = await feed(new_manager(), work(1, output=100_000))
    before = await ask(manager, BUDGET)
    await manager.compact_summary("call_0", "THE GIANT IN SHORT")
    manager.history.on_cancelled()
    await manager.on_turn_complete()  # renders the view once more
    assert await ask(manager, BUDGET) == before


# -- search ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("search_index", "asked"), [("auto", ["needle"]), ("scan", [])])
async def test_a_store_that_searches_is_asked_unless_the_config_says_scan(
    search_index: str, asked: list[str], tmp_path: Path
) -> None:
    queries: list[str] = []

    class Asked(SqliteStore):
        async def search(self, session_id: str, query: str, limit: int = 10) -> list[int]:
            queries.append(query)
            return await super().search(session_id, query, limit)

    manager = make_manager(load_config({"search_index": search_index}), store=Asked(tmp_path / "a.db"))
    try:
        await feed(manager, [{"role": "user", "content": "Find the needle."}])
        assert await manager.search("needle") == ["m1"]
    finally:
        await manager.close()
    assert queries == asked
