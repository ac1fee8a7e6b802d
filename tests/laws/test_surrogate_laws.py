"""Laws of texts with surrogates, which Python can hold and Unicode cannot: memory and stores keep the same."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.parsing import copy_checked
from amplifier_context_core.stores import Store, open_store

TEXTS = st.text(st.sampled_from("\ud83d\ude00\ud800\udbff\udc00\udfffa\0é漢😀\ufeff"), max_size=9)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PAIR = "\ud83d\ude00"  # as two code units; "😀" is one


class Text(str):
    """A text of another class, such as a member of an enumeration."""


@given(VALUES)
@example({PAIR: PAIR, "😀": [PAIR]})
@example([Text(PAIR), "\ud83d" + PAIR, "\ude00\ud83d"])
def test_a_copied_value_is_what_any_reader_of_its_json_has(value: Any) -> None:
    copied = copy_checked(value)
    assert copied == json.loads(json.dumps(value))
    assert repr(copied) == repr(json.loads(json.dumps(value)))
    assert copy_checked(copied) == copied


@given(st.lists(TEXTS, min_size=1, max_size=4), VALUES)
@example([PAIR, "\ud83d", "\ude00"], {PAIR: PAIR})
def test_memory_and_a_store_keep_the_same_texts(texts: list[str], value: Any) -> None:
    given = [{"role": "user", "content": text, "metadata": {"more": value}} for text in texts]
    asyncio.run(_kept_alike(given))


@given(VALUES)
@example({"\ud800": 1})
@example([{"a": {"b\udfff": [2**70, 0.1]}}])
def test_an_item_of_any_json_is_kept_over_a_resume(value: Any) -> None:
    asyncio.run(_item_kept(json.loads(json.dumps(value))))


async def _item_kept(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"jsonl:{Path(folder) / 'sessions'}"
        manager = ContextManager(load_config({}), session_id="s", store=open_store(url, durability="none"))
        await manager.add_message({"role": "user", "content": "hello"})
        await manager.queue.append(ContextItem(value))
        await manager.pool.add(ContextItem(value, "a value", "v"))
        await manager.get_messages_for_request()
        await manager.pin("m1")
        await manager.forget(containing="nothing that is there")
        await manager.close()
        again = ContextManager(load_config({}), session_id="s", store=open_store(url, durability="none"))
        await again.ready()
        assert [repr(item.content) for item in (*again.queue, *again.pool)] == [repr(value)] * 2
        await again.close()


async def _kept_alike(given: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        in_memory = await _after_adding(open_store("memory:"), given)
        urls = [f"sqlite:{Path(folder) / 'sessions.db'}", f"jsonl:{Path(folder) / 'sessions'}"]
        for url in urls:
            assert await _after_adding(open_store(url, durability="none"), given) == in_memory
            again = ContextManager(load_config({}), session_id="s", store=open_store(url, durability="none"))
            assert _contents(await again.get_messages()) == in_memory
            await again.set_messages(given)  # as the host has them
            assert _contents(await again.get_messages()) == in_memory
            await again.close()


async def _after_adding(store: Store, given: list[dict[str, Any]]) -> list[Any]:
    manager = ContextManager(load_config({}), session_id="s", store=store)
    for message in given:
        await manager.add_message(message)
    kept = _contents(await manager.get_messages())
    await manager.close()
    return kept


def _contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [(repr(message["content"]), repr(message["metadata"]["more"])) for message in messages]
