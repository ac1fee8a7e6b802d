"""The vocabulary of token counts: loaded once in a process, in a thread. No session waits for its download."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.messages import tokens
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, approx_token_counter, count_message_tokens
from amplifier_context_core.stores import MemoryStore
from tests.durable.sessions import again, manager_on, turns
from tests.managers import ask, feed
from tests.messages import says, user
from tests.places import Place

EXACT = {"token_counter": "o200k_base"}


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


async def test_sessions_that_count_at_once_load_it_once_in_another_thread(vocabulary: Vocabulary) -> None:
    sessions = [manager_on(MemoryStore(), f"s{number}", **EXACT) for number in range(20)]
    await asyncio.gather(*(session.add_message(user("how many?")) for session in sessions))
    (thread,) = vocabulary.loaded_in
    assert thread != threading.get_ident()
    expected = count_message_tokens(user("how many?"), VocabularyTokenCounter(pieces, "o200k_base"))
    assert [entry.tokens for session in sessions for entry in session.snapshot()] == [expected] * 20


async def test_mounting_loads_one_that_is_installed_in_the_background(vocabulary: Vocabulary) -> None:
    manager = manager_on(MemoryStore(), **EXACT)
    await mount_manager(MockCoordinator(), manager, "context-test")
    async with asyncio.timeout(20):
        while not vocabulary.loaded_in:
            await asyncio.sleep(0.001)
    await manager.add_message(user("how many?"))
    assert len(vocabulary.loaded_in) == 1


@pytest.mark.stores("memory")
async def test_without_a_vocabulary_the_log_names_the_way_out_and_the_session_goes_on(
    place: Place, vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    first = await feed(manager_on(place.store(), place.session_id(), **EXACT), turns(40))
    await ask(first)
    resumed = await again(first, place, **EXACT)
    tokens._loaded.clear()  # pyright: ignore[reportPrivateUsage]  # as in a new process
    vocabulary.there_is = False
    await feed(resumed, [user("and now?"), says("seventeen")])
    assert [message["content"] for message in await ask(resumed)][-2:] == ["and now?", "seventeen"]
    (warning,) = [one for one in caplog.messages if "vocabulary" in one]
    assert "pip install 'amplifier-context-core[exact]'" in warning
    assert resumed.session.counter.loaded is approx_token_counter
    assert resumed.snapshot()[-1].tokens == count_message_tokens(resumed.snapshot()[-1].message)
    await resumed.store.close()
