"""Laws of the state: bounded, rules and finished tasks are never taken back, applying twice is applying once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter as counter
from amplifier_context_core.messages.parsing import json_text
from amplifier_context_summary.patch import Patch
from amplifier_context_summary.state import FileUse, State, applied, as_json
from tests.summary.scripted import tokens_of

ROOM = 1_500
words = st.sampled_from(
    ["add", "a", "test", "of", "the", "parser", "fix", "lint", "release", "notes", "move", "module", "rename", "field"]
)
texts = st.lists(words, min_size=1, max_size=9).map(" ".join)
few_words = st.sampled_from(["add", "lint", "fix"])
few_ids = st.sampled_from(["", "t1", "t2", "t3", "f1", "f2", "d1", "d2"])
marks = st.integers(1, 60).map(lambda number: f"m{number}")
ids = st.integers(1, 60).flatmap(lambda number: st.sampled_from([f"t{number}", f"f{number}", f"r{number}", ""]))


def patches_of(texts: st.SearchStrategy[str], ids: st.SearchStrategy[str]) -> st.SearchStrategy[Patch]:
    """Patches with these texts and ids."""
    statements = st.fixed_dictionaries({"text": texts, "marks": st.lists(marks, max_size=3)})
    finished = st.fixed_dictionaries({"id": ids, "text": texts, "evidence": st.just(["m3"])})
    return st.fixed_dictionaries(
        {},
        optional={
            "goal": statements,
            "corrections": st.lists(statements, max_size=3),
            "rules": st.lists(st.fixed_dictionaries({"quote": texts}), max_size=3),
            "decisions": st.lists(statements, max_size=4),
            "facts": st.lists(statements, max_size=6),
            "open": st.lists(st.fixed_dictionaries({"id": ids, "text": texts}), max_size=4),
            "done": st.lists(finished, max_size=3),
            "failures": st.lists(statements, max_size=3),
            "next": texts,
            "hints": st.lists(texts, max_size=20),
            "drop": st.lists(ids, max_size=6),
        },
    ).map(Patch.model_validate)


uses = st.lists(st.builds(FileUse, texts, st.sampled_from([("read",), ("written", "run")]), marks), max_size=4)
courses = st.lists(st.tuples(patches_of(texts, ids), uses), min_size=1, max_size=50)
# Few texts and ids, so that many meet.
dense_courses = st.lists(st.tuples(patches_of(few_words, few_ids), st.just([])), min_size=1, max_size=5)


def run(course: list[tuple[Patch, list[FileUse]]], max_tokens: int = ROOM) -> list[State]:
    """The state after each patch, the empty one first."""
    states = [State()]
    for number, (patch, files) in enumerate(course, 1):
        states.append(applied(states[-1], patch, number * 10, counter, max_tokens=max_tokens, files=files))
    return states


def of(state: State, section: Any) -> set[str]:
    return {item.text for item in state.of(section)}


@given(courses)
def test_the_state_stays_within_its_bounds_however_often_it_changes(course: list[tuple[Patch, list[FileUse]]]) -> None:
    for state in run(course, 400):
        assert tokens_of(state, counter) <= 400 * 1.1
        assert len(state.hints) <= 12
        assert len({item.id for item in state.items}) == len(state.items)


@given(courses, st.sampled_from([200, 1_000, 4_000]))
def test_as_json_the_state_is_little_larger_than_its_bound(
    course: list[tuple[Patch, list[FileUse]]], room: int
) -> None:
    """`writer._JSON` is the bound: a request leaves as much room for the state."""
    assert counter(json_text(as_json(run(course, room)[-1]))) <= 1.8 * room + 60


@given(courses)
def test_a_rule_stays_word_for_word_while_there_is_room(course: list[tuple[Patch, list[FileUse]]]) -> None:
    states = run(course, 1_000_000)
    for before, after in pairwise(states):
        assert of(before, "rule") <= of(after, "rule")


@given(courses | dense_courses)
def test_a_task_that_is_done_stays_done(course: list[tuple[Patch, list[FileUse]]]) -> None:
    """Not even when it found no room in the state any more."""
    for room in (300, 1_000_000):
        finished: set[str] = set()
        for state in run(course, room):
            finished |= of(state, "done")
            assert not finished & of(state, "open")


def run_last_again(course: list[tuple[Patch, list[FileUse]]], state: State, max_tokens: int) -> State:
    """The state after the last patch once more."""
    patch, files = course[-1]
    return applied(state, patch, len(course) * 10, counter, max_tokens=max_tokens, files=files)


def made_of(**patch: Any) -> list[tuple[Patch, list[FileUse]]]:
    return [(Patch.model_validate(patch), [])]


def done(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "text": text, "evidence": ["m3"]}


# The ids of these patches are those that their own items get.
FACTS = [{"text": text} for text in ("add", "a test", "the parser", "fix", "lint", "notes", "move")]
DROPPING = made_of(facts=FACTS, open=[{"id": "t9", "text": "fix"}, {"text": "rename"}], drop=["f3", "f7", "t9"])
FINISHED_AND_OPEN = made_of(done=[done("", "add"), done("t1", "fix")], open=[{"text": "fix"}])
BY_ANOTHER_TEXT = made_of(open=[{"text": "lint"}]) + made_of(done=[done("t1", "add")], open=[{"text": "add"}])
TWO_OF_ONE_ID = made_of(open=[{"text": "lint"}]) + made_of(open=[{"id": "t1", "text": t} for t in ("add", "fix")])
DONE_BY_ID_AND_BY_TEXT = made_of(open=[{"text": "add"}]) + made_of(done=[done("t1", "move"), done("", "add")])


@given(courses | dense_courses)
@example(DROPPING)
@example(FINISHED_AND_OPEN)
@example(BY_ANOTHER_TEXT)
@example(TWO_OF_ONE_ID)
@example(DONE_BY_ID_AND_BY_TEXT)
def test_a_patch_applied_twice_is_applied_once_as_long_as_there_is_room(
    course: list[tuple[Patch, list[FileUse]]],
) -> None:
    """Whatever its ids name: with a state that they were not made for, they may be those of its own items."""
    state = run(course, 1_000_000)[-1]
    again = run_last_again(course, state, 1_000_000)
    assert replace(again, made=0) == replace(state, made=0)


@given(courses)
@example(DROPPING)
def test_without_room_a_patch_applied_again_and_again_ends_in_one_state(
    course: list[tuple[Patch, list[FileUse]]],
) -> None:
    """What it states and had no room once is stated again, as new: it may then take the place of older items."""
    states = [run(course)[-1]]
    while len(states) < 20 and (len(states) == 1 or replace(states[-1], made=0) != replace(states[-2], made=0)):
        states.append(run_last_again(course, states[-1], ROOM))
    assert len(states) < 20


def test_a_task_is_not_taken_for_one_that_the_same_patch_made() -> None:
    """Models number their own tasks; the state numbers all items."""
    ((patch, _),) = made_of(
        goal={"text": "ship it"},
        done=[done("t1", "set up CI"), done("t2", "fix the loader")],
        open=[{"id": "t3", "text": "write the changelog"}],
    )
    state = applied(State(), patch, 10, counter, max_tokens=ROOM)
    assert of(state, "done") == {"set up CI", "fix the loader"}
    assert of(state, "open") == {"write the changelog"}


def test_a_task_that_a_patch_calls_done_and_open_is_done() -> None:
    course = made_of(open=[{"text": "lint"}]) + made_of(done=[done("t1", "")], open=[{"id": "t1", "text": "lint"}])
    assert (of(run(course)[-1], "open"), of(run(course)[-1], "done")) == (set(), {"lint"})


def test_what_is_dropped_and_stated_again_is_replaced() -> None:
    """Two texts that differ in signs only are the same item."""
    course = made_of(facts=[{"text": "used if size < 4096"}], decisions=[{"text": "Use SQLite", "reason": "faster"}])
    course += made_of(
        facts=[{"text": "used if size > 4096", "marks": ["m9"]}],
        decisions=[{"text": "use SQLite.", "reason": "no server"}],
        drop=[item.id for item in run(course)[-1].items],
    )
    items = run(course)[-1].items
    assert [(one.text, one.detail, one.changed) for one in items] == [
        ("use SQLite.", "no server", 20),
        ("used if size > 4096", "", 20),
    ]


def test_an_open_task_is_not_renamed_to_another_one() -> None:
    course = made_of(open=[{"text": "move"}, {"text": "lint"}]) + made_of(open=[{"id": "t1", "text": "lint"}])
    assert [item.text for item in run(course)[-1].items] == ["move", "lint"]


def test_two_open_tasks_of_one_id_are_two_tasks() -> None:
    assert of(run(TWO_OF_ONE_ID)[-1], "open") == {"add", "fix"}


def test_ids_name_items_of_an_earlier_patch_of_the_same_range() -> None:
    """A range is asked for in pieces; with a result that came late, one may end where the one before ends."""
    first, second = (
        made_of(facts=[{"text": "the port is 1"}], open=[{"text": "write the parser"}])[0][0],
        made_of(facts=[{"text": "the port is 2"}], done=[done("t2", "the parser is written")], drop=["f1"])[0][0],
    )
    state = applied(State(), first, 27, counter, max_tokens=ROOM)
    state = applied(state, second, 27, counter, max_tokens=ROOM)
    assert of(state, "fact") == {"the port is 2"}
    assert (of(state, "open"), of(state, "done")) == (set(), {"write the parser"})


@given(courses)
def test_a_chapter_shows_what_its_range_changed_and_a_merged_one_all_of_it(
    course: list[tuple[Patch, list[FileUse]]],
) -> None:
    state = run(course)[-1]
    whole = [line.text for line in state.lines(1, len(course) * 10)]
    parts = [line.text for n in range(1, len(course) + 1) for line in state.lines(n * 10 - 9, n * 10)]
    assert sorted(filter(_is_no_list, parts)) == sorted(filter(_is_no_list, whole))
    assert {item.line for item in state.items if item.section != "file"} <= set(whole)
    assert all(any(item.text in line for line in whole) for item in state.items)


def _is_no_list(line: str) -> bool:
    return not line.startswith(("Files ", "To find more"))
