"""The vocabulary of token counts is loaded once in a process, in a thread, as soon as a module is mounted."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.messages import tokens
from amplifier_context_core.messages.tokens import VocabularyTokenCounter, count_message_tokens
from amplifier_context_core.stores import MemoryStore
from tests.durable.sessions import manager_on
from tests.messages import user

EXACT = {"token_counter": "o200k_base"}
COUNTER = VocabularyTokenCounter(len, "o200k_base")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The threads of each load in a process that has loaded no vocabulary yet."""
    found: list[int] = []
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.setattr(tokens, "_from_wheel", lambda encoding: found.append(threading.get_ident()) or COUNTER)
    yield found
    with tokens._loading:  # a load under way ends first: it would leave its vocabulary to the tests that come
        monkeypatch.undo()


async def test_sessions_that_count_at_once_load_it_once_in_another_thread(threads: list[int]) -> None:
    sessions = [manager_on(MemoryStore(), f"s{number}", **EXACT) for number in range(20)]
    await asyncio.gather(*(session.add_message(user("how many?")) for session in sessions))
    assert (len(threads), threading.get_ident() in threads) == (1, False)
    counted = [entry.tokens for session in sessions for entry in session.snapshot()]
    assert counted == [count_message_tokens(user("how many?"), COUNTER)] * 20


async def test_mounting_loads_one_that_is_installed_in_the_background(threads: list[int]) -> None:
    manager = manager_on(MemoryStore(), **EXACT)
    await mount_manager(MockCoordinator(), manager, "context-test")
    async with asyncio.timeout(20):
        while not threads:
            await asyncio.sleep(0.001)
    await manager.add_message(user("how many?"))
    assert len(threads) == 1


_FORK = """
import asyncio, os, time
from amplifier_context_core import ContextManager
from amplifier_context_core.messages import tokens
found, loads = tokens._from_wheel, []
tokens._from_wheel = lambda encoding: (loads.append(encoding), time.sleep(0.2), found(encoding))[-1]
ContextManager().session.counter.start_loading()
while not loads:
    time.sleep(0.001)
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
asyncio.run(asyncio.wait_for(ContextManager().add_message({"role": "assistant", "content": "seventeen"}), 20))
os._exit(0)
"""


def test_a_process_that_is_forked_while_it_is_loaded_can_count() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
