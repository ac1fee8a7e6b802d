"""Child sessions that begin with their parent's history share its checkpoint and its marks."""

from __future__ import annotations

from tests.managers import ask, feed, new_manager
from tests.messages import text, work

BUDGET = 4_000


async def test_a_child_starts_from_its_parents_checkpoint() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    before = await ask(parent, BUDGET)
    assert int((await parent.explain())["view"]["checkpoint"][1:]) > 100
    child = new_manager(session_id="child")
    await child.set_messages(await parent.get_messages())
    assert text(await ask(child, BUDGET)) == text(before)
    assert (await child.explain())["compactions"] == 0


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
