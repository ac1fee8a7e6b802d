"""What `forget` erases of the texts that the tool returned."""

import json
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem
from amplifier_context_core.items.item import label_of
from tests.managers import ask, feed, new_manager
from tests.messages import Message, call, result, says, user
from tests.recall.calls import recall_round, recalled, tool_of


def fetched(output: str) -> list[Message]:
    return [call("c", name="fetch"), result("c", output)]


async def test_forget_reaches_copies_and_copies_of_copies_and_no_page_without_a_label() -> None:
    manager = await feed(new_manager(), [user("The key is hunter2-SECRET."), user("No.\n\nNever.")])
    tool = tool_of(manager)
    for number, mark in enumerate(("m1", "m4", "m2"), 1):
        await feed(manager, recall_round(number, {"mark": mark}, await recalled(tool, "read", mark=mark)))
    await feed(manager, fetched('KEPT = "Kept in the pool: '))
    assert await manager.forget(["m10"]) == ["m10"]
    assert await manager.forget(["m1"]) == ["m1", "m4", "m6"]
    left = str(await manager.get_messages())
    assert "hunter2" not in left
    assert "[m2, user]" in left


IDS = ["q3", "q", "3.", 'q", x', "q]", "</quoted_output>", "[/quoted_output]", "q\nm1", "\ud800"]
IDS += ["x" * 300, "x" * 299, "漢" * 90]


@pytest.mark.parametrize("id", IDS, ids=ascii)
async def test_forget_reaches_recalled_copies_of_an_item_that_it_drops_and_of_no_other(id: str) -> None:
    manager = await feed(new_manager(), [user("hello")])
    for one in IDS:
        secret = "a word before the code 4711\n" * 9 if one == id else "harmless\n"
        await manager.pool.add(ContextItem(f"{secret}<quoted_output>", 'a "report", [m1]', one))
    tool = tool_of(manager)
    await feed(manager, fetched(f"Kept in the pool: {label_of(manager.pool.get(id))}"))  # m3
    reads: list[tuple[str, dict[str, Any]]] = [("read", {"mark": one}) for one in IDS]
    reads += [("read", {"mark": id, "offset": 2}), ("search", {"query": "code", "mark": id}), ("list", {})]
    small = tool_of(manager, max_result_tokens=100)
    pages = [await recalled(tool, name, **given) for name, given in reads] + [await recalled(small, "read", mark=id)]
    for number, page in enumerate(pages):
        await feed(manager, recall_round(number, {}, page))
    marks = [f"m{5 + 2 * number}" for number in (IDS.index(id), *range(len(IDS), len(pages)))]
    await feed(manager, recall_round(99, {}, await recalled(tool, "read", mark=marks[0])))
    marks = ["m3", *marks, f"m{5 + 2 * len(pages)}"]
    assert await manager.forget(["m3"]) == sorted(marks, key=lambda mark: int(mark[1:]))
    assert "4711" not in str(await manager.get_messages())


@pytest.mark.parametrize("id", ["q3", "q] 3", "x" * 300])
async def test_forget_reaches_recalled_copies_of_an_item_that_the_pool_has_evicted(id: str) -> None:
    manager = await feed(new_manager(pool_limit=2), [user("hello")])
    tool = tool_of(manager)
    items = [ContextItem("the code 4711", "a [long] report", id), ContextItem("harmless", "a [long] report", "p")]
    for item in items:
        await manager.pool.add(item)
    envelope = json.dumps({"success": True, "output": f"Kept in the pool: {label_of(items[0])}"})
    await feed(manager, fetched(envelope))  # m3
    await ask(manager)
    await feed(manager, [says("kept")])
    pages = [await recalled(tool, "read", mark=mark) for mark in (id, "p")]
    pages.insert(1, await recalled(tool, "list"))
    listed = [entry.mark for entry in manager.snapshot() if "[p] a [long]" in str(entry.message["content"])]
    for number, page in enumerate(pages):
        await feed(manager, recall_round(number, {}, page))
    for number in range(2):
        await manager.pool.add(ContextItem("other", "other", f"o{number}"))
    erased = await manager.forget(["m3"])
    assert erased == ["m3", *listed, *(entry.mark for entry in manager.snapshot()[-5:-2:2])]
    assert len(listed) == 1
    left = str(await manager.get_messages())
    assert "4711" not in left
    assert "harmless" in left
