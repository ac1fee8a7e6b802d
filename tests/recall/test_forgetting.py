"""What `forget` erases of the texts that the tool returned."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem
from amplifier_context_core.items.item import label_of
from tests.managers import ask, feed, new_manager
from tests.recall.calls import recall_round, recalled, tool_of


async def test_forget_reaches_copies_and_copies_of_copies() -> None:
    manager = new_manager()
    await feed(manager, [{"role": "user", "content": "The key is hunter2-SECRET."}, {"role": "user", "content": "No."}])
    tool = tool_of(manager)
    await feed(manager, recall_round(1, {"mark": "m1"}, await recalled(tool, "read", mark="m1")))
    await feed(manager, recall_round(2, {"mark": "m4"}, await recalled(tool, "read", mark="m4")))
    await feed(manager, recall_round(3, {"mark": "m2"}, await recalled(tool, "read", mark="m2")))
    assert await manager.forget(["m1"]) == ["m1", "m4", "m6"]
    left = str(await manager.get_messages())
    assert "hunter2" not in left
    assert "[m2, user]" in left


IDS = [
    "q3",
    "q",
    "3.",
    'q", x',
    "q]",
    "</quoted_output>",
    "[/quoted_output]",
    "q\nm1",
    "\ud800",
    "x" * 300,
    "x" * 299,
    "漢" * 90,
]


@pytest.mark.parametrize("id", IDS, ids=ascii)
async def test_forget_reaches_recalled_copies_of_an_item_that_it_drops_and_of_no_other(id: str) -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "hello"}])
    for one in IDS:
        secret = "a word before the code 4711\n" * 9 if one == id else "harmless\n"
        await manager.pool.add(ContextItem(f"{secret}<quoted_output>", 'a "report", [m1]', one))
    tool = tool_of(manager)
    kept: dict[str, Any] = {"id": "c", "tool": "fetch", "arguments": {}}
    await feed(manager, [{"role": "assistant", "content": "", "tool_calls": [kept]}])
    label = f"Kept in the pool: {label_of(manager.pool.get(id))}"
    await feed(manager, [{"role": "tool", "tool_call_id": "c", "content": label}])  # m3
    reads: list[tuple[str, dict[str, Any]]] = [("read", {"mark": one}) for one in IDS]
    reads += [("read", {"mark": id, "offset": 2}), ("search", {"query": "code", "mark": id}), ("list", {})]
    small = tool_of(manager, max_result_tokens=100)
    pages = [await recalled(tool, name, **given) for name, given in reads] + [await recalled(small, "read", mark=id)]
    for number, page in enumerate(pages):
        await feed(manager, recall_round(number, {}, page))
    marks = [f"m{5 + 2 * number}" for number in (IDS.index(id), *range(len(IDS), len(pages)))]
    await feed(manager, recall_round(99, {}, await recalled(tool, "read", mark=marks[0])))
    assert await manager.forget(["m3"]) == sorted(
        ["m3", *marks, f"m{5 + 2 * len(pages)}"], key=lambda mark: int(mark[1:])
    )
    assert "4711" not in str(await manager.get_messages())


def enveloped(text: str) -> str:
    return json.dumps({"success": True, "output": text})


@pytest.mark.parametrize("written", [str, json.dumps, enveloped])
@pytest.mark.parametrize("id", ["q3", "q] 3", "x" * 300])
async def test_forget_reaches_recalled_copies_of_an_item_that_the_pool_has_evicted(
    id: str, written: Callable[[str], str]
) -> None:
    manager = await feed(new_manager(pool_limit=2), [{"role": "user", "content": "hello"}])
    tool = tool_of(manager)
    call: dict[str, Any] = {"id": "c", "tool": "fetch", "arguments": {}}
    await feed(manager, [{"role": "assistant", "content": "", "tool_calls": [call]}])
    items = [ContextItem("the code 4711", "a [long] report", id), ContextItem("harmless", "a [long] report", "p")]
    for item in items:
        await manager.pool.add(item)
    kept = written(f"Kept in the pool: {label_of(items[0])}")
    await feed(manager, [{"role": "tool", "tool_call_id": "c", "content": kept}])  # m3
    await ask(manager)
    await feed(manager, [{"role": "assistant", "content": "kept"}])
    pages = [
        await recalled(tool, "read", mark=id),
        await recalled(tool, "list"),
        await recalled(tool, "read", mark="p"),
    ]
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


async def test_a_result_that_quotes_no_label_reaches_no_recalled_page() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "hello\n\nagain"}])
    await feed(manager, recall_round(1, {"mark": "m1"}, await recalled(tool_of(manager), "read", mark="m1")))
    call: dict[str, Any] = {"id": "c", "tool": "read_file", "arguments": {}}
    await feed(manager, [{"role": "assistant", "content": "", "tool_calls": [call]}])
    await feed(manager, [{"role": "tool", "tool_call_id": "c", "content": 'KEPT = "Kept in the pool: '}])
    assert await manager.forget(["m5"]) == ["m5"]
