"""What bounds let through before the vocabulary was loaded is counted exactly afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from amplifier_context_core import Plugins, SessionLost, hookimpl
from amplifier_context_core.messages import tokens
from amplifier_context_core.messages.token_bounds import BoundingTokenCounter
from amplifier_context_core.stores import UNCOUNTED, MemoryStore
from amplifier_context_core.transcript.entry import Entry
from tests.authors import make_manager
from tests.durable.vocabulary import EXACT, ROOT, Vocabulary, exact, filled, loaded
from tests.places import Place

from .sessions import again, manager_on, user

START_LOADING = BoundingTokenCounter.start_loading


@pytest.mark.stores("memory", "sqlite")
async def test_counts_are_exact_from_the_answer_on(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    view = await manager.get_messages_for_request()
    assert vocabulary.loads == 0
    assert manager.compactor.last_sent is not None
    assert manager.compactor.last_sent.counted > exact(view[0])  # a bound
    await manager.add_message({"role": "assistant", "content": "seventeen"})
    assert manager.compactor.last_sent.counted == exact(view[0])
    assert [entry.tokens for entry in manager.snapshot()] == [exact(entry.message) for entry in manager.snapshot()]
    await manager.close()
    kept = place.store()
    entries = await kept.read(place.session_id(), 0)
    assert [entry.tokens for entry in entries] == [exact(entry.message) for entry in entries]
    await kept.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_question_that_no_process_counted_is_counted_by_the_next(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    resumed = await again(manager, place, **EXACT)
    (entry,) = [*(await loaded(resumed)).snapshot()]
    assert entry.tokens == exact(entry.message)
    await resumed.close()


@pytest.mark.stores("memory")
@pytest.mark.parametrize("act", ["compact", "explain", "load", "pin", "set", "forget"])
async def test_every_use_of_counts_is_of_exact_ones(place: Place, vocabulary: Vocabulary, act: str) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    await manager.get_messages_for_request()
    work = {
        "compact": manager.compact,
        "explain": manager.explain,
        "load": manager.load,
        "pin": lambda: manager.pin("m1"),
        "set": lambda: manager.set_messages([user("another")]),
        "forget": lambda: manager.forget(["m1"]),
    }
    await work[act]()
    assert vocabulary.loads == 1
    assert [entry.tokens for entry in manager.snapshot()] == [exact(entry.message) for entry in manager.snapshot()]


@pytest.mark.stores("memory")
async def test_what_is_added_while_the_bounds_are_counted_is_counted_too(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await asyncio.gather(
        *(manager.add_message(user(f"question {number}")) for number in range(20)),
        manager.counted(),
        *(manager.add_message(user(f"question {number}")) for number in range(20, 40)),
    )
    assert len(manager.snapshot()) == 40
    assert [entry.tokens for entry in manager.snapshot()] == [exact(entry.message) for entry in manager.snapshot()]


@pytest.mark.stores("memory", "sqlite")
async def test_a_bound_is_not_stored_when_the_store_lost_the_entry(place: Place, vocabulary: Vocabulary) -> None:
    """What only memory holds is written again."""
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("one?"))
    await manager.store.replace(place.session_id(), 0, ())
    manager.history._stored._may_diverge = True  # pyright: ignore[reportPrivateUsage]
    await manager.add_message(user("two?"))
    assert [entry.tokens for entry in await manager.store.read(place.session_id(), 0)] == [UNCOUNTED, UNCOUNTED]
    await manager.close()


@pytest.mark.stores("memory")
async def test_a_bound_is_not_stored_in_a_fork_of_a_deleted_session(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), place.session_id(), on_conflict="fork", **EXACT)
    await manager.add_message(user("one?"))
    append = manager.store.append

    async def lost(session_id: str, entries: Any, *, atomic: bool = True) -> None:
        if session_id == place.session_id():
            raise SessionLost(session_id, "another writer")
        await append(session_id, entries, atomic=atomic)

    await manager.store.delete(place.session_id())
    manager.store.append = lost
    await manager.add_message(user("two?"))
    stored = await manager.store.read(manager.history.session_id, 0)
    assert [entry.tokens for entry in stored] == [UNCOUNTED, UNCOUNTED]


@pytest.mark.stores("memory", "sqlite")
async def test_a_message_of_a_checkpoint_whose_count_was_not_stored_is_counted_on_resuming(
    place: Place, vocabulary: Vocabulary
) -> None:
    first = await filled(place, 40)
    checkpoint = next(view.checkpoint for view in first.compactor.cache.views if view.checkpoint)
    seqs = [segment.round.entries[0].seq for segment in checkpoint.segments if segment.round]
    expected = await first.get_messages_for_request()
    entries = await first.store.find(place.session_id(), seqs)
    await first.store.rewrite(place.session_id(), [entry._replace(tokens=UNCOUNTED) for entry in entries])
    resumed = await again(first, place, **EXACT)
    assert await resumed.get_messages_for_request() == expected
    assert resumed.snapshot().gap
    (checkpoint,) = (view.checkpoint for view in resumed.compactor.cache.views if view.checkpoint)
    shown = [entry for segment in checkpoint.segments if segment.round for entry in segment.round.entries]
    assert [entry.tokens for entry in shown] == [exact(entry.message) for entry in shown]
    await resumed.close()


def test_an_append_does_not_wait_for_a_loop_that_stopped_while_its_answer_was_counted(
    vocabulary: Vocabulary,
) -> None:
    """A question is acknowledged, and its loop stopped by its owner, while an answer of the same loop is on its way."""
    manager = manager_on(_Slow(), **EXACT)
    still, other = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def question_and_answer() -> None:
        question = asyncio.ensure_future(manager.add_message(user("how many?")))
        while not manager.history._queue._taken:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
        answer = asyncio.ensure_future(manager.add_message({"role": "assistant", "content": "seventeen"}))
        await asyncio.wait((question, answer), return_when=asyncio.FIRST_COMPLETED)

    async def elsewhere() -> None:
        async with asyncio.timeout(5):
            await manager.add_message(user("from elsewhere"))

    try:
        still.run_until_complete(question_and_answer())
        other.run_until_complete(elsewhere())
        still.run_until_complete(_all_done())
    finally:
        still.close()
        other.close()
    assert {entry.message["content"] for entry in manager.snapshot()} == {"how many?", "seventeen", "from elsewhere"}
    assert [entry.tokens for entry in manager.snapshot()] == [exact(entry.message) for entry in manager.snapshot()]


async def _all_done() -> None:
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


class _Slow(MemoryStore):
    """Takes its time for the first append."""

    appends = 0

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        self.appends += 1
        await asyncio.sleep(0.1 if self.appends == 1 else 0)
        await super().append(session_id, entries, atomic=atomic)


@pytest.mark.stores("memory")
async def test_an_observer_sees_exact_counts_only(place: Place, vocabulary: Vocabulary) -> None:
    class Observer:
        def __init__(self) -> None:
            self.seen: list[int] = []

        @hookimpl
        def amplifier_context_appended(self, session_id: str, entry: Any) -> None:
            self.seen.append(entry.tokens)

    observer, plugins = Observer(), Plugins()
    plugins.register(observer)
    base = manager_on(place.store(), place.session_id(), **EXACT)
    manager = make_manager(base.config, session_id=base.session_id, store=base.store, plugins=plugins)
    await manager.add_message(user("how many files are there?"))
    assert observer.seen == [exact(manager.snapshot()[0].message)]
    await manager.close()


@pytest.mark.stores("memory")
async def test_the_vocabulary_is_loaded_in_the_background_once_the_first_view_is_sent(
    place: Place, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    assert vocabulary.loads == 0
    await manager.get_messages_for_request()
    while not tokens.loaded_token_counter():
        await asyncio.sleep(0.001)
    assert vocabulary.loads == 1


async def test_many_sessions_load_the_vocabulary_in_one_thread(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    may_end, load = threading.Event(), vocabulary.load

    def slowly(encoding: str) -> tokens.TokenCounter | None:
        may_end.wait(20)
        return load(encoding)

    monkeypatch.setattr(tokens, "_from_wheel", slowly)
    before = threading.active_count()
    for number in range(20):
        manager = manager_on(MemoryStore(), f"s{number}", **EXACT)  # other stores have threads of their own
        await manager.add_message(user("how many?"))
        await manager.get_messages_for_request()
    threads = threading.active_count()
    may_end.set()
    assert threads <= before + 1


@pytest.mark.stores("memory")
async def test_a_view_is_sent_where_no_thread_can_be_started(
    place: Place, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many?"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert len(await manager.get_messages_for_request()) == 1
    await manager.add_message({"role": "assistant", "content": "seventeen"})
    assert vocabulary.loads == 1


_FORK = """
import asyncio, os, time
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.messages import tokens
found, loads = tokens._from_wheel, []
def slowly(encoding):
    loads.append(encoding)
    time.sleep(0.2)
    return found(encoding)
tokens._from_wheel = slowly
async def main():
    manager = ContextManager(load_config({}))
    await manager.add_message({"role": "user", "content": "how many?"})
    await manager.get_messages_for_request()
asyncio.run(main())
while not loads:
    time.sleep(0.001)
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
async def goes_on():
    async with asyncio.timeout(20):
        await ContextManager(load_config({})).add_message({"role": "assistant", "content": "seventeen"})
asyncio.run(goes_on())
os._exit(0)
"""


def test_a_process_that_is_forked_while_the_vocabulary_is_loaded_can_count() -> None:
    command = [sys.executable, "-c", _FORK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
