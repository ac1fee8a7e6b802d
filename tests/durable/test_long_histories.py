"""A history of 41,000 messages without a checkpoint, as an import or a former version leaves it."""

import asyncio
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.view import shared_cache
from tests.core.drafts import transcript
from tests.durable.sessions import SECRET, manager_on
from tests.managers import ask, feed
from tests.messages import Message, call, result, says, system, text, user

pytestmark = pytest.mark.stores("memory")

LENGTH = 41_000
TIME = "2031-01-01T00:00:00.123+00:00"


def history(changed: dict[int, Message]) -> list[Entry]:
    """A system prompt, words of a person up to the first third, and an agent's work. `changed`: messages by index."""
    pairs = [one for n in range(40) for one in (call(f"c{n}"), result(f"c{n}", f"line {n} of a file " * 8))]
    work = [call("never"), call("late"), *pairs, result("late"), says("A step is done.")]
    prompt, *steps = transcript([system("Be brief."), user("Next."), *work]).snapshot()
    entries = [prompt]
    while len(entries) < LENGTH:
        seq, turn, first = len(entries), entries[-1].turn, 0 if len(entries) < LENGTH / 3 else 1
        entries += [one._replace(seq=seq + place, turn=turn + 1 - first) for place, one in enumerate(steps[first:], 1)]
    for place, message in changed.items():
        (made,) = transcript([message]).snapshot()
        entries[place] = made._replace(seq=place + 1, turn=entries[place].turn)
    return entries


async def opened(entries: list[Entry], **config: Any) -> ContextManager:
    """A manager of a session of which the store has these entries, and nothing else."""
    shared_cache.clear()
    store = MemoryStore()
    await store.append("s", entries)
    return manager_on(store, **config)


def contents(view: list[Message]) -> list[Any]:
    return [message.get("content") for message in view]


async def test_a_long_history_has_the_view_and_the_checkpoint_that_it_has_in_memory() -> None:
    entries = history({9_000: user("never touch auth.py", metadata={"pinned": True})})
    lean, whole = await opened(entries), await opened(entries)
    await whole.load()
    view = await ask(lean)
    assert text(view) == text(await ask(whole))
    assert "never touch auth.py" in text(view)
    assert len(lean.snapshot().gap) > LENGTH // 2
    assert not whole.snapshot().gap
    one, other = (manager.compactor.cache.views[0].checkpoint for manager in (lean, whole))
    assert one is not None
    assert other is not None
    assert (one.covered, one.digest, one.segments) == (other.covered, other.digest, other.segments)
    assert lean.history.turn_count == whole.history.turn_count


async def test_all_of_a_long_history_is_read_searched_and_forgotten_after_its_first_view() -> None:
    entries = history({500: says(SECRET), 600: says("the quokka is in lib/quokka.py")})
    manager = await opened(entries)
    interrupted = asyncio.create_task(manager.get_messages_for_request())
    await asyncio.sleep(0.05)
    interrupted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    await ask(manager)
    assert manager.snapshot().gap
    assert (await manager.recall("m501") or {})["content"] == SECRET
    assert await manager.search("quokka") == ["m601"]
    assert list(await manager.forget(containing=SECRET)) == ["m501"]
    assert SECRET not in text(await ask(manager))
    messages = await manager.get_messages()
    assert len(messages) == len(entries)
    assert messages[600] == entries[600].message


async def test_a_view_for_which_the_newest_messages_are_too_few_gets_the_others() -> None:
    """It is never sent the newest ones."""
    retired = user("retired", metadata={"amplifier:instruction": {"disposition": "retired"}})
    manager = await opened(history(dict.fromkeys(range(LENGTH - 20_000, LENGTH), retired)))
    assert "A step is done." in text(await ask(manager))
    assert not manager.snapshot().gap


async def test_after_an_interrupt_a_long_history_shows_the_newest_words_that_are_left() -> None:
    """A chapter had them, because newer words were shown."""
    words = "keep the old API " * 700
    manager = await opened(history({LENGTH - 1_000: user(words), LENGTH - 1: call("open")})[:LENGTH])
    await feed(manager, [user("change all of it")])
    assert words not in contents(await ask(manager))
    assert manager.snapshot().gap
    assert (await manager.interrupt())["removed"] == [f"m{LENGTH + 1}"]
    assert words in contents(await ask(manager))


async def test_an_interrupt_of_a_turn_that_was_most_of_what_a_view_looked_at_needs_no_loaded_history() -> None:
    retired = says("retired", metadata={"amplifier:instruction": {"disposition": "retired"}})
    short = {"compact_summary": "read"}
    outputs = [(call(f"k{n}"), result(f"k{n}", "a line of a file " * 400, metadata=short)) for n in range(60)]
    turn = [user("Read all."), *(one for pair in outputs for one in pair)]
    start = LENGTH - len(turn)
    changed = dict.fromkeys(range(LENGTH - 20_000, start), retired) | dict(enumerate(turn, start))
    manager = await opened(history(changed)[:LENGTH])
    assert "Read all." in contents(await ask(manager))
    assert manager.snapshot().gap
    assert len((await manager.interrupt())["removed"]) == len(turn)
    assert "Read all." not in contents(await ask(manager))


@pytest.mark.parametrize("is_erased", [False, True])
async def test_a_new_message_loads_no_history_unless_it_may_be_an_echo_of_an_erased_one(is_erased: bool) -> None:
    entries = history({500: user("(erased)", metadata={"timestamp": TIME})})
    if is_erased:
        entries[500] = entries[500]._replace(redaction_trace="")
    manager = await opened(entries)
    await feed(manager, [user(SECRET, metadata={"timestamp": TIME})])
    assert bool(manager.snapshot().gap) != is_erased
    assert (SECRET in text([manager.snapshot()[-1].message])) != is_erased


async def test_a_host_that_replays_a_long_history_may_leave_out_the_first_messages() -> None:
    replayed = {place: says(f"step {place}", metadata={"timestamp": TIME}) for place in (30, 31)}
    manager = await opened(history(replayed)[:LENGTH])
    await feed(manager, replayed.values())
    assert len(manager.snapshot()) == LENGTH
