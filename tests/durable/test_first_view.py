"""The first view of a process: sent without a vocabulary where upper bounds of counts suffice, and exact afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Plugins, SessionLost, exact_token_counter, hookimpl
from amplifier_context_core.messages import count_cache, tokens
from amplifier_context_core.messages.token_bounds import BoundingTokenCounter
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, approx_token_counter, count_message_tokens
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.stores import UNCOUNTED, MemoryStore
from amplifier_context_core.transcript.transcript import Entry
from amplifier_context_core.view import shared_cache
from tests.places import Place

from .sessions import Message, again, call, manager_on, turns, user

START_LOADING = BoundingTokenCounter.start_loading
EXACT = {"token_counter": "o200k_base"}
ROOT = Path(__file__).parents[2]


class Pieces:
    """A vocabulary of texts of four bytes, quickly loaded."""

    def encode_ordinary(self, text: str) -> list[bytes]:
        data = text.encode()
        return [data[start : start + 4] for start in range(0, len(data), 4)]


class Vocabulary:
    """Whether this process has loaded the vocabulary; `there_is` says whether one can be loaded."""

    def __init__(self) -> None:
        self.loads = 0
        self.there_is = True

    def load(self, encoding: str) -> tokens.TokenCounter | None:
        self.loads += 1
        return VocabularyTokenCounter(Pieces(), encoding) if self.there_is else None

    def nowhere(self, encoding: object = None) -> None:
        """Find no vocabulary."""

    def unload(self) -> None:
        """Behave as a new process does."""
        tokens._loaded.clear()
        shared_cache.clear()
        count_cache.clear()


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vocabulary]:
    """A process that has loaded no vocabulary yet."""
    made = Vocabulary()
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.setattr(tokens, "_from_wheel", made.load)
    monkeypatch.setattr(tokens, "_from_tiktoken", made.nowhere)
    monkeypatch.setattr(BoundingTokenCounter, "start_loading", made.nowhere)  # each test loads when it says
    yield made
    count_cache.clear()


def exact(message: Message) -> int:
    return count_message_tokens(message, VocabularyTokenCounter(Pieces(), "o200k_base"))


async def filled(place: Place, number: int, **config: Any) -> ContextManager:
    """Return a session of this many turns, with its vocabulary loaded and a view of the newest state sent."""
    manager = manager_on(place.store(), **EXACT, **config)
    for message in turns(number):
        await manager.add_message(message)
        if message["role"] == "assistant":
            await manager.get_messages_for_request()
    return manager


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.stores("memory", "sqlite")
async def test_first_view_of_a_resumed_session_needs_no_vocabulary(place: Place, vocabulary: Vocabulary) -> None:
    first = await filled(place, 40)
    assert first.compactor.compactions
    expected = await first.get_messages_for_request()
    resumed = await again(first, place, **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    assert await resumed.get_messages_for_request() == expected
    assert vocabulary.loads == before
    assert resumed.snapshot().gap
    await resumed.store.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_question_is_stored_and_sent_before_the_vocabulary_is_loaded(
    place: Place, vocabulary: Vocabulary
) -> None:
    resumed = await again(await filled(place, 40), place, **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    await resumed.add_message(user("and now?"))
    view = await resumed.get_messages_for_request()
    assert view[-1]["content"] == "and now?"
    assert vocabulary.loads == before
    await resumed.close()
    kept = place.store()
    (last,) = (await kept.read("s", 0))[-1:]
    assert last.tokens == UNCOUNTED  # a bound is never stored
    await kept.close()


@pytest.mark.stores("memory")
@pytest.mark.parametrize("turns_stored", [2, 44, 48])
async def test_view_by_bounds_is_the_view_by_exact_counts(
    place: Place, vocabulary: Vocabulary, turns_stored: int
) -> None:
    """With every question that is surely, perhaps or surely not too much, before and after the first compaction."""
    first = await filled(place, turns_stored)
    length, store = len(first.snapshot()), first.store
    await first.close()
    state = await store.load_checkpoint("s")
    assert state
    views: dict[str, list[Any]] = {"exact": [], "bounds": []}
    waited: list[bool] = []
    for size in range(0, 4_000, 250):
        for name in views:
            vocabulary.unload()
            if name == "exact":
                exact_token_counter()
            before = vocabulary.loads
            forked = manager_on(store, f"{name} {size}", **EXACT)
            await store.fork("s", forked.session_id, length)
            await store.save_checkpoint(forked.session_id, length, state)
            await forked.set_system_prompt_factory(_prompt)
            await forked.add_message(user("ask " * (size // 4) + "?") | {"timestamp": "2026-01-01T00:00:00Z"})
            views[name].append(await forked.get_messages_for_request())
            if name == "bounds":
                waited.append(vocabulary.loads > before)
            await forked.close()
    assert views["bounds"] == views["exact"]
    assert waited[0] is False
    assert any(waited) or turns_stored == 2


async def _prompt() -> str:
    return "You are careful. " * 12


@pytest.mark.stores("memory")
async def test_where_a_bound_cannot_decide_the_view_waits_for_the_vocabulary(
    place: Place, vocabulary: Vocabulary
) -> None:
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("x" * 8_000))  # 2,000 tokens, at most 8,000: the budget is 6,000
    view = await manager.get_messages_for_request()
    assert vocabulary.loads == 1
    assert view[0]["content"] == "x" * 8_000
    assert manager.compactor.last_sent is not None
    assert manager.compactor.last_sent.counted == exact(view[0])


# -- what is counted afterwards ---------------------------------------------------------------------------------------


@pytest.mark.stores("memory", "sqlite")
async def test_counts_are_exact_from_the_answer_on(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), **EXACT)
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
    assert [entry.tokens for entry in await kept.read("s", 0)] == [exact(e.message) for e in await kept.read("s", 0)]
    await kept.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_question_that_no_process_counted_is_counted_by_the_next(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    resumed = await again(manager, place, **EXACT)
    (entry,) = [*(await _loaded(resumed)).snapshot()]
    assert entry.tokens == exact(entry.message)
    await resumed.close()


async def _loaded(manager: ContextManager) -> ContextManager:
    await manager.load()
    return manager


@pytest.mark.stores("memory")
@pytest.mark.parametrize("act", ["compact", "explain", "load", "pin", "set", "forget"])
async def test_every_use_of_counts_is_of_exact_ones(place: Place, vocabulary: Vocabulary, act: str) -> None:
    manager = manager_on(place.store(), **EXACT)
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
    manager = manager_on(place.store(), **EXACT)
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
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("one?"))
    await manager.store.replace("s", 0, ())
    manager.history._stored._may_diverge = True  # pyright: ignore[reportPrivateUsage]
    await manager.add_message(user("two?"))
    assert [entry.tokens for entry in await manager.store.read("s", 0)] == [UNCOUNTED, UNCOUNTED]
    await manager.close()


@pytest.mark.stores("memory")
async def test_a_bound_is_not_stored_in_a_fork_of_a_deleted_session(place: Place, vocabulary: Vocabulary) -> None:
    manager = manager_on(place.store(), on_conflict="fork", **EXACT)
    await manager.add_message(user("one?"))
    append = manager.store.append

    async def lost(session_id: str, entries: Any, *, atomic: bool = True) -> None:
        if session_id == "s":
            raise SessionLost("s", "another writer")
        await append(session_id, entries, atomic=atomic)

    await manager.store.delete("s")
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
    await first.store.rewrite("s", [entry._replace(tokens=UNCOUNTED) for entry in await first.store.find("s", seqs)])
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
    base = manager_on(place.store(), **EXACT)
    manager = ContextManager(base.config, store=base.store, plugins=plugins)
    await manager.add_message(user("how many files are there?"))
    assert observer.seen == [exact(manager.snapshot()[0].message)]


@pytest.mark.stores("memory")
async def test_the_vocabulary_is_loaded_in_the_background_once_the_first_view_is_sent(
    place: Place, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("how many files are there?"))
    assert vocabulary.loads == 0
    await manager.get_messages_for_request()
    while not tokens.loaded_token_counter():
        await asyncio.sleep(0.001)
    assert vocabulary.loads == 1


@pytest.mark.stores("memory")
async def test_many_sessions_load_the_vocabulary_in_one_thread(
    place: Place, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    may_end, load = threading.Event(), vocabulary.load

    def slowly(encoding: str) -> tokens.TokenCounter | None:
        may_end.wait(20)
        return load(encoding)

    monkeypatch.setattr(tokens, "_from_wheel", slowly)
    before = threading.active_count()
    for number in range(20):
        manager = manager_on(place.store(), f"s{number}", **EXACT)
        await manager.add_message(user("how many?"))
        await manager.get_messages_for_request()
    assert threading.active_count() <= before + 1
    may_end.set()


@pytest.mark.stores("memory")
async def test_a_view_is_sent_where_no_thread_can_be_started(
    place: Place, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(BoundingTokenCounter, "start_loading", START_LOADING)
    manager = manager_on(place.store(), **EXACT)
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


# -- what the provider reports of the first view -----------------------------------------------------------------------


@pytest.mark.stores("memory")
async def test_the_report_of_the_first_answer_is_compared_with_exact_counts(
    place: Place, vocabulary: Vocabulary
) -> None:
    """Compared with an upper bound it would be far too small, as that of a side call is."""
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("how many files are there? " * 40))
    view = await manager.get_messages_for_request()
    reported = Response(model="m", provider="p", usage=Usage(exact(view[0])))
    manager.on_response(reported)
    await manager.add_message({"role": "assistant", "content": "seventeen"})
    response = manager.snapshot()[-1].response
    assert response is not None
    assert response.usage == reported.usage


@pytest.mark.stores("memory")
async def test_a_refusal_of_the_first_view_teaches_a_window_below_its_exact_count(
    place: Place, vocabulary: Vocabulary
) -> None:
    manager = manager_on(place.store(), **EXACT)
    await manager.add_message(user("how many files are there? " * 40))
    (question,) = await manager.get_messages_for_request()
    manager.on_context_length_error()
    await manager.get_messages_for_request()
    window = manager.meter.known(("", "")).window
    assert window is not None
    assert window < exact(question)


# -- no vocabulary ----------------------------------------------------------------------------------------------------


@pytest.mark.stores("memory")
async def test_without_a_vocabulary_the_log_names_the_way_out_and_the_session_goes_on(
    place: Place, vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    first = await filled(place, 40)
    resumed = await again(first, place, **EXACT)
    vocabulary.unload()
    vocabulary.there_is = False
    await resumed.add_message(user("and now?"))
    shown = await resumed.get_messages_for_request()
    with caplog.at_level(logging.WARNING):
        await resumed.add_message({"role": "assistant", "content": "seventeen"})
        after = await resumed.get_messages_for_request()
    assert "pip install 'amplifier-context-core[exact]'" in caplog.text
    assert shown[-1] == after[-2]
    assert resumed.counter is approx_token_counter
    assert resumed.snapshot()[-1].tokens == count_message_tokens(resumed.snapshot()[-1].message)
    third = await again(resumed, place, **EXACT)
    assert (await third.get_messages_for_request())[-1] == after[-1]
    await third.store.close()


# -- bounds and processes ---------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec=None), max_size=300))
def test_no_text_has_more_tokens_than_its_bound(text: str) -> None:
    bound = BoundingTokenCounter("a vocabulary that no test loads")(text)
    assert exact_token_counter()(text) <= bound
    assert approx_token_counter(text) <= bound


_CHILD = """
import asyncio, json, sys
from amplifier_context_core import ContextManager, exact_token_counter, load_config, open_store
from amplifier_context_core.messages.token_bounds import BoundingTokenCounter
url, first = sys.argv[1:]
BoundingTokenCounter.start_loading = lambda self: None  # it would load while this looks what is loaded
if first == "load":
    exact_token_counter()
async def main():
    manager = ContextManager(load_config({"max_tokens": 6_000}), session_id="s", store=open_store(url))
    view = await manager.get_messages_for_request()
    loaded = sorted({"bpe_openai", "tiktoken"} & sys.modules.keys())
    gap = len(manager.snapshot().gap)
    await manager.store.close()
    print(json.dumps({"view": view, "loaded": loaded, "gap": gap}))
asyncio.run(main())
"""


def test_a_new_process_sends_the_same_bytes_with_and_without_the_vocabulary(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)

    async def fill() -> None:
        manager = await filled(place, 40)
        assert manager.compactor.compactions
        await manager.close()

    asyncio.run(fill())
    found = {first: _first_view(f"sqlite:{_file(place)}", first) for first in ("load", "leave")}
    assert found["leave"]["loaded"] == []
    assert found["load"]["loaded"] != []
    assert found["leave"]["gap"] > 0
    assert json.dumps(found["leave"]["view"]) == json.dumps(found["load"]["view"])


def _file(place: Place) -> Path:
    (found,) = (path for path in place.folder.rglob("*") if path.is_file() and path.suffix in (".db", ".sqlite"))
    return found


def _first_view(url: str, first: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, url, first]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_calls_that_wait_for_results_are_shown_with_stand_ins_before_the_vocabulary_is_loaded(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """A stand-in is counted when it is rendered: its bound is enough, too."""
    place = Place("sqlite", tmp_path)
    first = await filled(place, 40)
    await first.add_message(user("look"))
    await first.add_message(call("c1"))
    await first.close()
    resumed = manager_on(place.store(), **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    view = await resumed.get_messages_for_request()
    assert view[-1]["tool_call_id"] == "c1"
    assert vocabulary.loads == before
    await resumed.store.close()
