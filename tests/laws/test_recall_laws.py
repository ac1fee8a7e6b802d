"""Laws of recalled text: it is within its bounds, and it brings about no compaction that its session would not have.

A session with recalls is compared with the same session in which each recall was answered in one line.
"""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, approx_token_counter
from amplifier_context_core.transcript.matching_lines import MAX_EXCERPT, excerpts, words_of
from amplifier_context_core.transcript.query import fold
from amplifier_context_recall.lacking import name_sources
from amplifier_context_recall.recall_pages import lines_of, page_of, source_of
from amplifier_context_recall.recall_tool import USED_UP
from amplifier_context_testing import checked
from tests.managers import feed
from tests.messages import rounds, size, user
from tests.recall.calls import recall_round, tool_of

from .managers import new_manager

RECALL = -1
STEPS = st.lists(st.just(RECALL) | st.integers(1, 4_000), min_size=1, max_size=40)
BUDGETS = st.integers(600, 6_000)


async def session(steps: list[int], budget: int, config: dict[str, Any], *, answered: bool) -> ContextManager:
    """Run a session: a step is a tool round with an output of so many characters, or a recall of what came before."""
    manager = await feed(new_manager(**config), [user("Do the work.")])
    tool = tool_of(manager, max_result_tokens=1_000)
    await manager.get_messages_for_request(budget)  # a loop asks before any tool runs
    for number, step in enumerate(steps):
        last = manager.history.last_seq
        given = {"operation": "read", "mark": f"m{max(1, last - 8)}-m{last}"}
        if step == RECALL:
            answer = str((await tool.execute(given)).output) if answered else USED_UP
            await feed(manager, recall_round(number, given, answer))
        else:
            await feed(manager, rounds(1, start=number, output=step))
        view = await manager.get_messages_for_request(budget)
        checked(view)
        assert size(view) <= budget
    return manager


@given(STEPS, BUDGETS, st.sampled_from(["auto", "fixed"]), st.sampled_from([0.0, 0.3, 0.6, 1.0]), st.booleans())
async def test_recalls_bring_about_at_most_one_compaction_more_than_answers_in_one_line(
    steps: list[int], budget: int, cadence: str, share: float, auto: bool
) -> None:
    config = {"cadence": cadence, "recall_share": share, "auto_compact": auto}
    brief = await session(steps, budget, config, answered=False)
    full = await session(steps, budget, config, answered=True)
    assert full.compactor.compactions <= brief.compactor.compactions + 1


TEXTS = st.text(st.sampled_from("ab </_quotedp\n.😀"), max_size=60) | st.integers(900, 3_000).map(
    lambda size: "x" * size
)
GIANT = st.text(st.sampled_from("ab \n\u4f60😀</_quotedp"), max_size=200) | st.integers(900, 3_000).map(
    lambda size: "x7" * size
)


@given(st.lists(GIANT, max_size=5), st.integers(45, 90) | st.integers(45, 600), st.none() | st.integers(1, 20))
@example(["a\n" * 40], 400, 3)
@example([("</quoted_output>" * 4 + "\n") * 40], 200, None)  # escaped they cost more
def test_pages_one_after_another_are_the_whole_text_each_within_its_bounds_and_says_how_much_is_left(
    texts: list[str], tokens: int, limit: int | None
) -> None:
    sources = [source_of(f"m{number}", user(text)) for number, text in enumerate(texts, 1)]
    lines = [line for source in sources for line in source.lines]
    offset = column = 0
    read = [""] * len(lines)
    while offset < len(lines):
        page = page_of(
            sources, "all", offset=offset, column=column, limit=limit, tokens=tokens, counter=approx_token_counter
        )
        assert 0 < page.shown <= (limit or len(lines))
        assert page.shown + page.left_out == len(lines) - offset
        assert page.text.count("</quoted_output>") == 1
        assert approx_token_counter(page.text) <= tokens
        for number in range(offset, offset + page.shown):
            end = page.cut_at if page.cut_at and number == offset + page.shown - 1 else None
            part = lines[number][column if number == offset else 0 : end]
            assert part in page.text.replace("&lt;", "<")
            read[number] += part
        offset += page.shown - bool(page.cut_at)
        column = page.cut_at
    assert read == lines


@given(TEXTS, st.text(max_size=20), st.integers(1, 5))
def test_excerpts_are_lines_of_the_text_with_a_word_of_the_query(text: str, query: str, most: int) -> None:
    lines, words = lines_of(text), words_of(query)
    found = excerpts(lines, words, most)
    assert len(found) <= most
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    for number, shown in found:
        assert any(word in fold(lines[number - 1]) for word in words)
        assert len(shown) <= MAX_EXCERPT + 2
        assert shown.strip("…") in lines[number - 1]


NAMES = st.lists(
    st.tuples(
        st.sampled_from(["src/a.py", "src/b/c.py", "item_42", "readFile", "a1b2c3d4"]),
        st.integers(1, 12).map("m{}".format),
    ),
    unique_by=lambda one: one[0],
)


@given(NAMES, st.integers(0, 200), st.sampled_from(["", "src/a.py is shown"]))
def test_names_are_under_their_marks_the_first_of_them_within_their_tokens(
    names: list[tuple[str, str]], tokens: int, shown: str
) -> None:
    found = name_sources(names, shown, tokens, approx_token_counter)
    named = [(name, source.mark) for source in found for name in source.lines[0].split(", ")]
    wanted = [one for one in names if one[0] not in shown]
    assert sorted(named) == sorted(wanted[: len(named)])
    assert [source.mark for source in found] == sorted({mark for _, mark in named}, key=lambda mark: int(mark[1:]))
    assert sum(approx_token_counter(f"{source.header}\n{source.lines[0]}\n") for source in found) <= tokens
    assert tokens < 200 or named == [] or len(named) == len(wanted)
