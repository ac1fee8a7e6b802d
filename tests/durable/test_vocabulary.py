"""The vocabulary of token counts: loaded once in a process, in a thread. No session waits for its download."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager
from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.messages import tokens
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, approx_token_counter, count_message_tokens
from amplifier_context_core.stores import UNCOUNTED, MemoryStore
from amplifier_context_core.view import shared_cache
from tests.messages import user
from tests.places import Place

from .sessions import Message, again, manager_on, turns

EXACT = {"token_counter": "o200k_base"}
ROOT = Path(__file__).parents[2]


def pieces(text: str) -> int:
    """Count with a vocabulary of texts of four bytes, quickly loaded."""
    return -(-len(text.encode()) // 4)


class Vocabulary:
    """Whether this process has loaded the vocabulary; `there_is` says whether one can be loaded."""

    def __init__(self) -> None:
        self.loaded_in: list[int] = []  # the thread of each load
        self.there_is = True

    def load(self, encoding: str) -> tokens.TokenCounter | None:
        self.loaded_in.append(threading.get_ident())
        return VocabularyTokenCounter(pieces, encoding) if self.there_is else None

    def nowhere(self, encoding: str, seconds: float) -> None:
        """Find no vocabulary."""

    def unload(self) -> None:
        """Behave as a new process does."""
        tokens._loaded.clear()  # pyright: ignore[reportPrivateUsage]
        shared_cache.clear()


def exact(message: Message) -> int:
    return count_message_tokens(message, VocabularyTokenCounter(pieces, "o200k_base"))


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vocabulary]:
    """A process that has loaded no vocabulary yet."""
    made = Vocabulary()
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.setattr(tokens, "_from_wheel", made.load)
    monkeypatch.setattr(tokens, "_from_tiktoken", made.nowhere)
    yield made
    with tokens._loading:  # a load under way ends first: it would leave its vocabulary to the tests that come
        monkeypatch.undo()


async def filled(place: Place, number: int) -> ContextManager:
    """Return a session of this many turns, with a view of the newest state sent."""
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    for message in turns(number):
        await manager.add_message(message)
        if message["role"] == "assistant":
            await manager.get_messages_for_request()
    return manager


async def test_sessions_that_count_at_once_load_it_once_in_another_thread(vocabulary: Vocabulary) -> None:
    sessions = [manager_on(MemoryStore(), f"s{number}", **EXACT) for number in range(20)]
    await asyncio.gather(*(session.add_message(user("how many?")) for session in sessions))
    (thread,) = vocabulary.loaded_in
    assert thread != threading.get_ident()
    for session in sessions:
        assert [entry.tokens for entry in session.snapshot()] == [exact(user("how many?"))]


async def test_mounting_loads_one_that_is_installed_in_the_background(vocabulary: Vocabulary) -> None:
    manager = manager_on(MemoryStore(), **EXACT)
    await mount_manager(MockCoordinator(), manager, "context-test")
    async with asyncio.timeout(20):
        while not vocabulary.loaded_in:
            await asyncio.sleep(0.001)
    await manager.add_message(user("how many?"))
    assert len(vocabulary.loaded_in) == 1


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
ContextManager(load_config({})).session.counter.start_loading()
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


def test_a_process_that_is_forked_while_it_is_loaded_can_count() -> None:
    command = [sys.executable, "-c", _FORK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.stores("memory")
async def test_without_a_vocabulary_the_log_names_the_way_out_and_the_session_goes_on(
    place: Place, vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    resumed = await again(await filled(place, 40), place, **EXACT)
    vocabulary.unload()
    vocabulary.there_is = False
    with caplog.at_level(logging.WARNING):
        await resumed.add_message(user("and now?"))
        shown = await resumed.get_messages_for_request()
        await resumed.add_message({"role": "assistant", "content": "seventeen"})
        after = await resumed.get_messages_for_request()
    (warning,) = [one for one in caplog.messages if "vocabulary" in one]
    assert "pip install 'amplifier-context-core[exact]'" in warning
    assert shown[-1] == after[-2]
    assert resumed.session.counter.loaded is approx_token_counter
    assert resumed.snapshot()[-1].tokens == count_message_tokens(resumed.snapshot()[-1].message)
    third = await again(resumed, place, **EXACT)
    assert (await third.get_messages_for_request())[-1] == after[-1]
    await third.store.close()


@pytest.mark.stores("memory", "sqlite")
async def test_an_uncounted_message_of_a_checkpoint_is_counted_on_resuming(
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
