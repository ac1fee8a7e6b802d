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
from tests.messages import bare, rounds, size, text, work

BUDGET = 4_000


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("search", [None], "query"),
        ("search", ["x", None], "limit"),
        ("search", ["x", "5"], "limit"),
        ("recall", [5], "mark"),
        ("recall", [None], "mark"),
        ("pin", [None], "mark"),
        ("undo", [5], "mark"),
        ("compact", [5], "focus"),
        ("compact", [b""], "focus"),
        ("pin", ["m1", "false"], "pinned"),
        ("pin", ["m1", 0], "pinned"),
        ("search", ["x", True], "limit"),
        ("lacking_names", ["m1", 2.5], "limit"),
        ("lacking_names", [5], "marks"),
        ("recall_room", ["100"], "wanted"),
        ("recall_room", [None], "wanted"),
        ("compact_summary", [None, "short"], "call_id"),
        ("compact_summary", ["c1", None], "summary"),
        ("forget", [5], "marks"),
        ("forget", [["m1", 5]], r"marks\[1\]"),
        ("forget", {"containing": None}, "containing"),
        ("forget", {"marks": ["m1"], "trace": "false"}, "trace"),
        ("request_retention", {"retain_contents": "Go."}, "retain_contents"),
        ("request_retention", {"retain_contents": ["Go.", None]}, r"retain_contents\[1\]"),
        ("measured_request_view", {"retain_contents": "Go.", "count_view": print}, "retain_contents"),
    ],
)
async def test_an_argument_of_another_type_is_an_error_that_names_it(
    method: str, arguments: list[Any] | dict[str, Any], name: str
) -> None:
    manager = await feed(new_manager(), work(3))
    before = await manager.get_messages()
    with pytest.raises(ValueError, match=rf"^{name}: must be .*, got (str|bytes|int|float|bool|NoneType)$"):
        await (
            getattr(manager, method)(**arguments)
            if isinstance(arguments, dict)
            else getattr(manager, method)(*arguments)
        )
    assert await manager.get_messages() == before
    assert not manager.compactor.pins


# -- compact -----------------------------------------------------------------------------------------------------------


async def test_compact_compacts_below_the_trigger() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, 8_000)
    report = await manager.compact()
    after = await ask(manager, 8_000)
    assert report["compacted"] is True
    assert size(after) < size(before)
    assert report["after_tokens"] == size(after)
    assert (await manager.explain())["compactions"] == 1


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


async def test_a_summary_in_the_metadata_takes_the_place_of_a_clip() -> None:
    messages = work(60)
    messages[2]["metadata"] = {"compact_summary": "FILE ZERO IN SHORT"}
    view = await ask(await feed(clipping(), messages), BUDGET)
    assert "FILE ZERO IN SHORT" in [message["content"] for message in view]


async def test_a_summary_registered_by_call_id_takes_the_place_of_a_clip() -> None:
    manager = await feed(clipping(), work(60))
    await manager.compact_summary("call_3", "FILE THREE IN SHORT")
    view = await ask(manager, BUDGET)
    assert view[8]["content"] == "FILE THREE IN SHORT"
    assert bare(await manager.get_messages()) == work(60)


async def test_a_summary_registered_after_the_result_was_clipped_is_used_at_the_next_compaction() -> None:
    manager = await feed(clipping(), work(60))
    await ask(manager, BUDGET)
    await manager.compact_summary("call_59", "THE LAST IN SHORT")
    await feed(manager, rounds(60, start=100))
    assert "THE LAST IN SHORT" in text(await ask(manager, BUDGET))


# -- recall ------------------------------------------------------------------------------------------------------------


async def test_search_finds_what_was_folded() -> None:
    messages = work(80)
    messages[10]["content"] = "the needle is called zx81_frobnicator"
    manager = await feed(new_manager(), messages)
    await ask(manager, BUDGET)
    assert (await manager.search("zx81_frobnicator"))[0] == "m11"
    assert await manager.search("nothing_of_that_name") == []
    assert len(await manager.search("file", limit=3)) == 3


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


# -- retention ---------------------------------------------------------------------------------------------------------


async def test_a_summary_registered_after_a_view_showed_the_result_waits_for_a_compaction() -> None:
    manager = await feed(new_manager(), work(1, output=100_000))
    before = await ask(manager, BUDGET)
    await manager.compact_summary("call_0", "THE GIANT IN SHORT")
    manager.history.on_cancelled()
    await manager.on_turn_complete()  # renders the view once more
    assert await ask(manager, BUDGET) == before
