"""Child sessions that begin with their parent's history share its checkpoint and its marks."""

from __future__ import annotations

from tests.managers import Counter, ask, feed, new_manager
from tests.messages import text, work

BUDGET = 4_000


async def test_a_child_starts_from_its_parents_checkpoint_and_counts_nothing_that_it_covers() -> None:
    counter = Counter()
    parent = await feed(new_manager(counter=counter, session_id="parent"), work(80))
    before = await ask(parent, BUDGET)
    counted = counter.characters
    covered = int((await parent.explain())["view"]["checkpoint"][1:])
    history = await parent.get_messages()
    counter.characters = 0
    child = new_manager(counter=counter, session_id="child")
    await child.set_messages(history)
    assert text(await ask(child, BUDGET)) == text(before)
    assert (await child.explain())["compactions"] == 0
    after = sum(len(text([message])) for message in history[covered:])
    assert covered > 100
    assert counter.characters <= after + 200 < counted / 3


async def test_a_checkpoint_of_another_history_is_not_found() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    await ask(parent, BUDGET)
    other = await parent.get_messages()
    other[0]["content"] = "Do something else."
    child = new_manager(session_id="child")
    await child.set_messages(other)
    view = await ask(child, BUDGET)
    assert view[0]["content"] == "Do something else."
    assert (await child.explain())["compactions"] == 1
