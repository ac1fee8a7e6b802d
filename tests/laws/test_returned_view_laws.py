"""Law: a view that a host hands back in place of the history is the history, with what comes after it added."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import coding_session
from tests.managers import feed
from tests.messages import result, says, user

from .histories import Message, Step, conversations
from .managers import new_manager

SOAKING = settings().max_examples > 1_000  # see tests/conftest.py
CALL: Message = {"role": "assistant", "content": None, "tool_calls": [{"id": "fresh_1", "tool": "t", "arguments": {}}]}
NEW = st.sampled_from([[], [user("and now?")], [says(), user("ok")], [CALL, result("fresh_1")]])


def as_is(message: Message) -> Message:
    return message


def bare(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "metadata" and value is not None}


FORMS = st.sampled_from([as_is, bare])


class Twin:
    """A session whose host adds its messages, and has been given a view."""

    def __init__(self, budget: int, **config: Any) -> None:
        self._store, self._budget, self._config = MemoryStore(), budget, config
        self.manager = self._opened()

    def _opened(self) -> ContextManager:
        return new_manager(self._store, max_tokens=self._budget, **self._config)

    async def grown(self, steps: list[Step]) -> list[Message]:
        """Its view, after a request for each step."""
        shared_cache.clear()  # or it would begin with a checkpoint of its twin
        for step in steps:
            await feed(self.manager, step)
            await self.manager.get_messages_for_request()
        return await self.manager.get_messages_for_request()

    async def resume(self) -> None:
        await self.manager.close()
        self.manager = self._opened()

    async def shown(self) -> tuple[list[tuple[int, Message]], int, list[Message]]:
        """Its entries that a model may see, its compactions, and then the view of the next request."""
        await self.manager.load()
        entries = [(one.seq, one.message) for one in self.manager.snapshot() if not is_left_out(one.message)]
        return entries, self.manager.compactor.compactions, await self.manager.get_messages_for_request()


async def law(
    steps: list[Step],
    budget: int,
    new: list[Message],
    form: Callable[[Message], Message],
    *,
    resumes: bool,
    **config: Any,
) -> None:
    ours, other = Twin(budget, **config), Twin(budget, **config)
    view = await ours.grown(steps)
    assert await other.grown(steps) == view
    if resumes:
        await ours.resume()
        await other.resume()
    await ours.manager.set_messages(copy.deepcopy([*map(form, view), *new]))
    await feed(other.manager, new)
    entries, compactions, after = await ours.shown()
    wanted = await other.shown()
    assert entries == wanted[0]
    assert (compactions, after) == wanted[1:]


@given(conversations(), st.integers(60, 4_000), NEW, FORMS, st.booleans(), st.booleans())
def test_a_returned_view_is_the_history_whatever_the_conversation(
    steps: list[Step], budget: int, new: list[Message], form: Callable[[Message], Message], resumes: bool, merges: bool
) -> None:
    asyncio.run(law(steps, budget, new, form, resumes=resumes, merge_consecutive=merges))


@settings(max_examples=3_000 if SOAKING else 6)
@given(st.integers(0, 50), st.integers(20, 90), st.integers(2_000, 9_000), NEW, FORMS, st.booleans())
def test_a_returned_view_of_a_long_session_is_the_history(
    seed: int, length: int, budget: int, new: list[Message], form: Callable[[Message], Message], resumes: bool
) -> None:
    asyncio.run(law([[one] for one in coding_session(length, seed)], budget, new, form, resumes=resumes))
