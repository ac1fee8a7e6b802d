"""Law of hosts: whatever one does and whenever it stops, each request is valid, nothing is doubled, nothing hangs.

A host does what hosts may do at the worst time: it cancels, re-enters, changes tools and prompts, edits. Each request
of its agent loop is judged as a provider that binds thinking would. Threads are in tests/manager/test_threads.py.
"""

import asyncio
import copy
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.hooks import HookRegistry

from amplifier_context_core import ContextError
from amplifier_context_core.events import COMPACTION, POST_COMPACT, PRE_COMPACT, PREFIX_CHANGED
from amplifier_context_core.items import ContextItem
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.thinking_checker import BoundThinkingChecker
from tests.laws.managers import counting, new_manager
from tests.managers import ToolHost
from tests.messages import Message, block, result, says, user

pytestmark = [
    pytest.mark.kernel,
    # The kernel's `emit` goes on to its next handler in a thread of its own after the loop of its caller was closed.
    pytest.mark.filterwarnings("ignore:coroutine '(_OwnedHookTask.run|HostileHost._handle)' was never awaited"),
]

PROVIDER = SimpleNamespace(name="anthropic", default_model="claude-opus-5-5")
TOOLS = ("read", "bash", "find", "grep")
PATIENCE = 30.0  # seconds that any call may take
DEPTH: ContextVar[int] = ContextVar("DEPTH", default=0)  # handlers that the current call was made in

Step = Coroutine[Any, Any, None]


class HostileHost:
    """One session. `steps` yields what it does, call by call.

    Args:
        seed: of all that it does.
        cuts_off: a step may end with tasks that are not done; the caller ends the loop of each step.
    """

    def __init__(self, seed: int, *, cuts_off: bool = False) -> None:
        self._random = random.Random(seed)
        self._cuts_off = cuts_off
        self._store = MemoryStore()
        self._budget = self._random.choice([700, 1_500, 4_000, 9_000])
        self._tools = ["read"]
        self._prompt: str | None = "You are 0."  # None: the factory fails
        self._checker = BoundThinkingChecker()
        self._calm = False  # handlers change nothing
        self._count = 0
        self._view: list[Message] | None = None  # of the newest request; None: it was given up
        self._left: list[Message] = []  # to add
        self.manager = self._opened()

    def steps(self) -> Iterator[Step]:
        """Yield the calls of a session to its end, each to be awaited before the next is asked for."""
        shared_cache.clear()
        try:
            for _ in range(self._random.randint(1, 5)):
                yield from self._turn()
                if self._random.random() < 0.3:
                    yield self._resume()
            yield self._resume()
            yield from self._turn()
            yield self._nothing_is_there_twice()
        finally:
            yield self.manager.close()

    async def _nothing_is_there_twice(self) -> None:
        contents = [str(message["content"]) for message in await self.manager.get_messages()]
        own = [content for content in contents if "item " in content]
        assert len(own) == len(set(own)), "a message is there twice"

    def _opened(self) -> Any:
        hooks = HookRegistry()
        config: dict[str, Any] = {"max_tokens": self._budget, "token_meter": "actual"}
        manager = new_manager(self._store, kindred=True, hooks=hooks, **config)
        manager.requests.host = ToolHost(lambda: {name: SimpleNamespace(description=name) for name in self._tools})
        manager.requests.prompt.factory = self._system_prompt
        for event in (PRE_COMPACT, COMPACTION, POST_COMPACT, PREFIX_CHANGED):
            hooks.register(event, self._handle, name=event)
        return manager

    async def _system_prompt(self) -> str:
        if self._prompt is None:
            raise RuntimeError("no prompt")
        return self._prompt

    async def _handle(self, event: str, data: Message) -> HookResult:
        """A handler of a compaction, which calls whatever it likes."""
        if self._random.random() < 0.1:
            return HookResult(action="deny", reason="not now")
        if not self._calm and DEPTH.get() < 3:
            DEPTH.set(DEPTH.get() + 1)
            try:
                await self._do()
            finally:
                DEPTH.set(DEPTH.get() - 1)
        return HookResult(action="continue")

    def _turn(self) -> Iterator[Step]:
        yield from self._added([user(self._text(60))])
        for _ in range(self._random.randint(1, 4)):
            yield self._noise()
            if self._random.random() < 0.3:
                self._tools = self._random.sample(TOOLS, self._random.randint(1, 4))
            if self._random.random() < 0.2:
                self._prompt = self._random.choice([None, "You are 1.", "You are 2."])
            yield self._request()
            if self._view is not None:
                yield from self._answer(self._view)

    async def _request(self) -> None:
        """Ask for the view of a request, and judge it."""
        self._view = None
        try:
            view = await asyncio.wait_for(self._requested(), PATIENCE)
        except ContextError:
            assert self._prompt is None
            self._prompt = "You are 3."
            return
        if view is None or all(message["role"] == "system" for message in view):
            return  # it was given up, or the turn was taken back
        broken = [*check_request(view), *self._checker.check(view, self._tools)]
        assert not broken, broken[:3]
        self._view = view

    async def _requested(self) -> list[Message] | None:
        """Return the request that the loop sends; None if it gives it up."""
        if self._random.random() < 0.5:
            view = await self.manager.get_messages_for_request(None, PROVIDER)
        else:
            measured = await self._measured()
            if self._random.random() < 0.2 or not await measured["transaction"].commit():
                measured["transaction"].rollback()
                return None
            view = measured["base_view"]
        self.manager.on_request()
        return view

    def _answer(self, view: list[Message]) -> Iterator[Step]:
        thought = {"type": "thinking", "thinking": "hm", "signature": f"sig-{self._count}"}
        answer = says([thought, block(self._text(30))])
        names = [f"call-{self._count}-{index}" for index in range(self._random.randint(1, 2))]
        answer["tool_calls"] = [{"id": name, "tool": "read", "arguments": {}} for name in names]
        self._checker.answered(view, answer, self._tools)
        beside = self._random.choice(("view", "compact", "explain", "pin", "short"))
        yield from self._added([answer, *(result(name, self._text(120)) for name in names)], beside)

    def _added(self, messages: list[Message], beside: str = "") -> Iterator[Step]:
        """Add messages while something else is done; what was cut off is repeated if it is not there."""
        self._left = messages
        yield self._add(beside)
        while self._left:
            yield self._add()

    async def _add(self, beside: str = "") -> None:
        """Add the messages that are left to add."""
        doing = asyncio.create_task(self._do(beside)) if beside else None
        while self._left:
            message = self._left[0]
            if message["content"] not in [stored["content"] for stored in await self.manager.get_messages()]:
                adding = asyncio.create_task(self.manager.add_message(copy.deepcopy(message)))
                if self._random.random() < 0.15:
                    if await self._is_left():
                        return
                    await self._cancel(adding)
                    continue
                await asyncio.wait_for(adding, PATIENCE)
            self._left = self._left[1:]
        if doing is not None and not await self._is_left():
            await asyncio.wait_for(doing, PATIENCE)

    async def _noise(self) -> None:
        for _ in range(self._random.randint(0, 3)):
            task = asyncio.create_task(self._do())
            if self._random.random() < 0.5:
                if await self._is_left():
                    return
                await self._cancel(task)
            await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), PATIENCE)
            assert task.cancelled() or task.exception() is None

    async def _is_left(self) -> bool:
        """Wait a moment. True if the step is to end with its tasks, which the end of their loop cuts off."""
        for _ in range(self._random.randint(0, 30)):
            await asyncio.sleep(0)
        return self._cuts_off and self._random.random() < 0.5

    async def _cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task, and wait until what it began is done. A task of a closed loop stays as it is for ever."""
        task.cancel()
        await asyncio.wait((task,), timeout=PATIENCE)
        async with asyncio.timeout(PATIENCE):
            work = self.manager.history._work
            while any(not one.get_loop().is_closed() for one in work) or self.manager.compactor.is_compacting:
                await asyncio.sleep(0.0005)

    async def _resume(self) -> None:
        """Open the session again. Its first view is the last one, or a host sets its own copy without thinking."""
        keeps = self._random.random() < 0.5
        self._calm = keeps  # or a handler changes what is compared
        before = None
        for _ in range(2 * keeps):  # the first may compact
            before = await self.manager.get_messages_for_request(None, PROVIDER)
        await self.manager.close()
        self.manager = self._opened()
        assert not keeps or await self.manager.get_messages_for_request(None, PROVIDER) == before
        self._calm = False
        if keeps:
            return
        messages = await self.manager.get_messages()
        changed = self._random.choice(("none", "dropped", "edited"))
        for blocks in (one["content"] for one in messages if isinstance(one["content"], list)):
            if changed == "dropped":
                blocks[:] = [block for block in blocks if block["type"] != "thinking"]
            elif changed == "edited" and blocks[0]["type"] == "thinking":
                blocks[0]["thinking"] = "edited"
        await self.manager.set_messages(messages)

    def _text(self, words: int) -> str:
        self._count += 1
        return f"item {self._count};" + " word" * self._random.randint(1, words)

    async def _do(self, name: str = "") -> None:
        """A call of a host: one of this name, or any."""
        manager, mark = self.manager, f"m{self._random.randint(1, self._count + 1)}"
        calls: dict[str, Callable[[], Any]] = {
            "view": partial(manager.get_messages_for_request, None, PROVIDER),
            "measured": self._measured,
            "explain": manager.explain,
            "chapters": manager.chapters,
            "search": partial(manager.search, "item"),
            "load": manager.load,
            "room": partial(manager.recall_room, 100),
            "compact": manager.compact,
            "echo": self._echo,
            "pin": partial(manager.pin, mark),
            "unpin": partial(manager.pin, mark, pinned=False),
            "short": partial(manager.compact_summary, f"call-{self._count}-0", "a short form"),
            "undo": manager.undo,
            "forget": partial(manager.forget, [mark]),
            "interrupt": manager.interrupt,
            "item": lambda: manager.pool.add(ContextItem("x", f"item of {self._count}", f"i{self._count % 3}")),
        }
        try:
            await calls[name or self._random.choice([*calls])]()
        except ContextError:  # the factory failed, or there is no such message to pin
            return

    async def _echo(self) -> None:
        await self.manager.set_messages(await self.manager.get_messages())

    async def _measured(self) -> dict[str, Any]:
        count = counting(limit=self._budget + 500)
        return await self.manager.measured_request_view(provider=PROVIDER, count_view=count)


def on_one_loop(seed: int) -> None:
    """Carry out a session as an asynchronous host does."""

    async def run() -> None:
        for step in HostileHost(seed).steps():
            await step

    asyncio.run(run())


def on_a_loop_per_call(seed: int) -> None:
    """Carry out a session as a synchronous host does: `asyncio.run` for each call. The end of a loop cuts tasks off."""
    for step in HostileHost(seed, cuts_off=True).steps():
        asyncio.run(step)


hosts = pytest.mark.parametrize("host", [on_one_loop, on_a_loop_per_call])


@hosts
@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_cancels_reenters_and_changes_everything_breaks_no_request(
    host: Callable[[int], None], seed: int
) -> None:
    host(seed)


@pytest.mark.soak
@hosts
@pytest.mark.parametrize("first", range(6, 500, 50))
def test_nor_do_hundreds_of_them(host: Callable[[int], None], first: int) -> None:
    for seed in range(first, first + 50):
        host(seed)
