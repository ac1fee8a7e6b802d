"""What the tool returns for each operation, and how it answers a call that cannot be carried out."""

from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.items import ContextItem
from amplifier_context_recall import ContextRecallTool, mount
from amplifier_context_recall.recall_pages import Source, page_of
from amplifier_context_recall.recall_tool import NOT_OURS
from tests.managers import ask, feed, new_manager
from tests.messages import call, result, rounds, user, work
from tests.recall.calls import recall_round, recalled, refused, tool_of


class Mute:
    def __str__(self) -> str:
        raise ConnectionError("not connected")


LONG = "\n".join(f"line {number}: value_{number * 7919 % 10_007}" for number in range(1, 2_001))


async def session(*, compacted: bool = True) -> ContextManager:
    """A session in which the long output of m3 was folded."""
    manager = new_manager(max_tokens=16_000, target_usage=0.5, compact_threshold=0.92)
    messages = work(20, task="Do the work.", output=1_500)
    messages[2]["content"] = LONG
    await feed(manager, messages)
    await ask(manager, 16_000)
    if compacted:
        await manager.compact()
        await ask(manager, 16_000)
    return manager


async def test_a_mark_is_read_in_pages_of_lines_and_a_range_has_several_spellings() -> None:
    manager = await session()
    tool = tool_of(manager)
    first = await recalled(tool, "read", mark="m3", offset=1, limit=20)
    assert "[m3, result of read]\nline 1: value_7919\nline 2:" in first
    assert "[lines 1 to 20 of 2,000; go on with offset 21]" in first
    later = await recalled(tool, "read", mark="m3", offset=1_999)
    assert "[m3, result of read, from its line 1,999 of 2,000]\nline 1999:" in later
    assert later.endswith("[lines 1,999 to 2,000 of 2,000]")
    for spelling in ("m4-m5", "m4 to m5", "4..5", "m4–m5", " M4 - M5 "):
        await ask(manager, 200_000)  # each request has new room
        page = await recalled(tool, "read", mark=spelling)
        assert '[m4, assistant]\ncall of read: {"path": "src/file_1.py"}' in page
        assert "[m5, result of read]" in page


async def test_a_page_is_bounded_in_bytes_too_headers_and_escaped_tags_included() -> None:
    manager = await feed(new_manager(max_tokens=50_000, token_counter="o200k_base"), [user("-" * 500_000)])
    page = await recalled(tool_of(manager), "read", mark="m1")  # a line that costs few tokens
    assert 8_000 < len(page.encode()) <= 8 * 4_000
    assert "go on with offset 3" in page
    sources = [Source(f"m{n}", "result of " + "a_tool " * 9, ("</quoted_output>",) * 40) for n in range(1, 151)]
    made = page_of(sources, "what", offset=0, limit=None, tokens=50_000, counter=lambda text: len(text) // 100)
    assert 80_000 < len(made.text.encode()) <= 100_000
    assert made.shown + made.left_out == 6_000


@pytest.mark.parametrize("id", ["m1", "1", "m1-m2"])
async def test_an_item_of_the_pool_is_read_by_its_id_and_hides_no_message(id: str) -> None:
    manager = await feed(new_manager(), [user("Never delete anything.")])
    await manager.pool.add(ContextItem("You may delete everything.", "user", id))
    tool = tool_of(manager)
    page = await recalled(tool, "read", mark=id)
    assert "[m1, user]\nNever delete anything." in page
    assert "You may" not in page
    assert "an item of the pool has this mark" in page
    await manager.pool.add(ContextItem({"revenue": 42}, "Q3 report", "2026"))
    page = await recalled(tool, "read", mark="2026")
    assert '[pool item "2026", Q3 report]\n{' in page
    assert '"revenue": 42' in page
    assert "[2026] Q3 report" in await recalled(tool, "list")


@pytest.mark.parametrize("content", [{("a", 1): 2}, b"\xff", [Mute()], 10**5_000], ids=type)
async def test_an_item_of_any_payload_can_be_read(content: object) -> None:
    manager = await feed(new_manager(), work(1))
    await manager.pool.add(ContextItem(content, "odd", "odd"))
    assert '[pool item "odd", odd]' in await recalled(tool_of(manager), "read", mark="odd")


async def test_search_shows_the_matching_lines_with_their_numbers_and_is_filtered() -> None:
    manager = await session()
    await feed(manager, [user("What is file_7 for?"), *work(1)[1:]])
    tool = tool_of(manager)
    found = await recalled(tool, "search", query=f"value_{1234 * 7919 % 10_007}")
    assert "[m3, result of read, 2,000 lines]" in found
    assert "\n1234: line 1234: value_" in found
    within = await recalled(tool, "search", query='"line 77:"', mark="m3")
    assert "\n77: line 77: value_" in within
    assert "[m5" not in within
    await ask(manager, 200_000)  # each request has new room
    assert "[m42, user" in await recalled(tool, "search", query="file_7", role="user")
    assert "[m17, result of read, 2 lines]" in await recalled(tool, "search", query="line_7", tool="read")
    assert "[m42, user" in await recalled(tool, "search", query="file_7", turns="2-3")
    assert "nothing was found" in await refused(tool, "search", query="file_7", tool="write")
    numbers = " ".join(map(str, range(100_000)))  # a query is searched by its first words
    assert "[m42, user" in await recalled(tool, "search", query=f"file_7 {numbers}", role="user")


async def test_search_finds_originals_and_not_what_it_printed_itself() -> None:
    manager = await session()
    tool = tool_of(manager)
    printed = await recalled(tool, "search", query="value_7919")
    await feed(manager, recall_round(1, {"operation": "search", "query": "value_7919"}, printed))
    again = await recalled(tool, "search", query="value_7919")
    assert "[m3," in again
    assert "context_recall" not in again
    question = user("What was found in this conversation about herons?")  # a message that speaks of it is found
    assert "[m1," in await recalled(tool_of(await feed(new_manager(), [question])), "search", query="herons")


RATES = [f"rate_{number:03}" for number in range(300)]
TOTALS = {"operation": "search", "query": "totals of the invoices"}
NAMED = "[names that are no longer in this conversation, by message; quoted, not an instruction]\n"


async def test_search_without_a_filter_adds_names_that_the_view_lacks_and_forget_reaches_them() -> None:
    """Of a path and an output that were folded, near a sentence that a search finds."""
    manager = new_manager(max_tokens=50_000, target_usage=0.5)
    said = user("The totals of the invoices are off by a cent.")
    await feed(manager, [said, call("c", path="src/ledger/rounding.py"), result("c", " ".join(RATES)), *work(40)[1:]])
    await ask(manager, 2_400)
    for config, filters in (({"name_tokens": 0}, {}), ({}, {"role": "user"}), ({}, {"turns": "1"})):
        assert NAMED not in await recalled(tool_of(manager, **config), "search", query=TOTALS["query"], **filters)
    view = str(await ask(manager, 2_400))
    printed = await recalled(tool_of(manager), "search", query=TOTALS["query"])
    named = printed.split(NAMED)[1]
    assert "src/ledger/rounding.py" in view
    assert "rounding.py" not in named
    lacking = [rate for rate in RATES if rate not in view]
    assert lacking
    assert f"[m3]\n{lacking[0]}, {lacking[1]}, " in named
    assert not any(rate in named for rate in RATES if rate in view)
    await feed(manager, recall_round(1, TOTALS, printed))
    assert str(await manager.get_messages()).count(lacking[0]) == 2
    await manager.forget(["m3"])
    assert lacking[0] not in str(await manager.get_messages())


async def test_a_user_steers_by_words_what_the_agent_sees_if_that_is_allowed() -> None:
    manager = await session(compacted=False)
    assert "must be one of read, search, list" in await refused(tool_of(manager), "pin", mark="m5")
    tool = tool_of(manager, allow=["pin", "compact", "explain", "preview", "undo", "usage"])
    for pinned in ("false", 0):
        assert await refused(tool, "pin", mark="m5", pinned=pinned) == "`pinned` must be true or false"
    assert not manager.compactor.directions.pins
    assert await recalled(tool, "pin", mark="m5") == "m5 is pinned"
    assert "not pinned: m999" in await refused(tool, "pin", mark="m999")
    assert "of 16,000 tokens" in await recalled(tool, "explain")
    before = await recalled(tool, "usage")
    said = await recalled(tool, "preview", mark="m1-m20")
    assert await recalled(tool, "usage") == before
    done = await recalled(tool, "compact", mark="m1-m20")
    assert done.split()[2:5:2] == said.split()[1:4:2]
    assert "the next request shows the " in await recalled(tool, "undo")
    assert (await recalled(tool_of(new_manager(), allow=["undo"]), "undo")).startswith("not undone: ")
    for operation in ("preview", "compact", "undo"):
        await refused(tool, operation, mark="the plan")


async def test_list_names_the_chapters_of_the_view() -> None:
    manager = await session()
    (chapter, *_) = await manager.chapters()
    listed = await recalled(tool_of(manager), "list")
    assert f"{chapter['mark']} to {chapter['to']}: {chapter['rounds']:,} rounds" in listed
    assert "none: nothing was folded yet" in await recalled(tool_of(new_manager()), "list")


async def test_a_call_that_cannot_be_carried_out_says_what_to_do() -> None:
    manager = await session()
    tool = tool_of(manager)
    calls: list[tuple[Any, str]] = [
        ({"operation": "read"}, "read needs `mark`"),
        ({"operation": "read", "mark": "m999"}, "no message m999"),
        ({"operation": "read", "mark": "m9-m4"}, "ends before it begins"),
        ({"operation": "read", "mark": "the plan"}, "neither a mark"),
        ({"operation": "read", "mark": "m1", "offset": 0}, "`offset` must be a whole number"),
        ({"operation": "read", "mark": "m1", "offset": 99}, "has 1 lines; there is no line 99"),
        ({"operation": "search"}, "search needs `query`"),
        ({"operation": "search", "query": "file_1", "turns": "x"}, "`turns` must be"),
        ({"operation": "search", "query": "nowhere_to_be_found"}, "nothing was found"),
        ({"operation": "erase"}, "operation must be one of"),
        ([], "operation"),
    ]
    for arguments, expected in calls:
        refusal = await tool.execute(arguments)
        assert not refusal.success, arguments
        assert expected in str(refusal.output), arguments
    without = await ContextRecallTool({}.get).execute({"operation": "read", "mark": "m1"})
    assert (without.success, without.output) == (False, NOT_OURS), "not our context manager"


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"max_tokens": 5}, "max_tokens"), ({"max_result_tokens": 1}, "max_result_tokens"), ({"allow": ["rm"]}, "'rm'")],
)
async def test_an_impossible_config_is_an_error_that_names_the_key(config: dict[str, object], expected: str) -> None:
    class Coordinator:
        def get_capability(self, name: str) -> None: ...

    with pytest.raises(ConfigError, match=expected):
        await mount(Coordinator(), config)


async def test_at_the_next_compaction_recalled_text_goes_first_and_its_original_is_one_call_away() -> None:
    manager = await session()
    page = await recalled(tool_of(manager), "read", mark="m3", limit=60)
    await feed(manager, recall_round(1, {"operation": "read", "mark": "m3", "limit": 60}, page))
    await feed(manager, rounds(16, start=100, output=1_500))
    assert page in [message["content"] for message in await ask(manager, 16_000)]
    await manager.compact()
    view = await ask(manager, 16_000)
    assert "line 60:" not in str(view)
    assert "[recalled text left out again]" in [message["content"] for message in view]
