"""Names that a view lacks: identifiers of the history, those first that an agent likely needs next."""

import pytest

from amplifier_context_recall.lacking import lacking_names, names_lacking_in
from tests.core.drafts import transcript
from tests.managers import ask, feed, new_manager
from tests.messages import Message, call, says, system, user, work
from tests.recall.calls import recall_round

HOME = "/home/anna/work/project"


def lacking(history: list[Message], *, view: list[Message] | None = None, hits: tuple[int, ...] = ()) -> list[str]:
    """Return the names that a view lacks, by default one of a single word."""
    return [name for name, _ in lacking_names(list(transcript(history).snapshot()), hits, view or [user("Go.")], 50)]


def test_names_of_the_view_are_not_lacking_whether_alone_or_inside_a_longer_one() -> None:
    history = [user("old_name and other_name and third_name")]
    assert lacking(history, view=[says("other_name"), call("c", path="src/third_name.py")]) == ["old_name"]


def test_a_path_that_a_chapter_writes_below_its_root_is_not_lacking_and_nothing_else_names_a_root() -> None:
    history = [user(f"{HOME}/src/a.py {HOME}/src/b.py")]
    text = f"[./ = {HOME}/]\nm1 read ./src/a.py\n[~/ = /mnt/]\nm2 read ~/home/b.py"
    chapter = {**user(text), "metadata": {"chapter": "digest"}}
    assert lacking(history, view=[chapter]) == [f"{HOME}/src/b.py"]
    assert lacking(history, view=[user(text)]) == [f"{HOME}/src/a.py", f"{HOME}/src/b.py"]


@pytest.mark.parametrize(("count", "found"), [(1_999, ["lost_name_of_long_ago"]), (2_000, [])])
def test_no_more_than_two_thousand_names_are_looked_for_in_a_view(count: int, found: list[str]) -> None:
    parts = [f"part_{number:06d}" for number in range(count)]
    view = [user("\n".join(f"x{part}" for part in parts))]
    assert lacking([user("lost_name_of_long_ago"), user(" ".join(parts))], view=view) == found


def test_newer_names_come_first_and_those_of_the_agent_and_of_hits_before_others() -> None:
    filler, copies = [user("Go on.")] * 12, recall_round(1, {"operation": "read", "mark": "m1"}, "copied_name")
    assert lacking([system("a_name"), user("old_name"), *filler, user("new_name"), *copies]) == ["new_name", "old_name"]
    assert lacking([says("old_name"), user("new_name")]) == ["old_name", "new_name"]
    assert lacking([user("old_name"), *filler, user("new_name"), *filler], hits=(1,)) == ["old_name", "new_name"]
    near = lacking([user("Why?"), call("c", path="old_name"), *filler, says("new_name"), *filler], hits=(1,))
    assert near == ["old_name", "new_name"], "a call beside a hit has the path"


async def test_a_session_names_what_its_view_lacks_and_the_next_one_will() -> None:
    manager = new_manager(max_tokens=50_000)
    await feed(manager, work(60))
    await ask(manager, 1_500)
    view = str(await ask(manager, 1_500))
    found = await names_lacking_in(manager, ["m3"], 20)
    assert len(found) == 20
    for one in found:
        assert one["name"] not in view
        assert one["name"] in str(await manager.recall(one["mark"]))
    await feed(manager, [says("I look at brand_new_name.")])
    assert "brand_new_name" not in [one["name"] for one in await names_lacking_in(manager, [], 1_000)]
