"""A host that does what hosts may do at the worst time: cancels, re-enters, changes tools and prompts, edits.

Each request of its loop is judged as a provider that binds thinking would.
"""

from __future__ import annotations

import asyncio
import copy
import random
from types import SimpleNamespace
from typing import Any

from amplifier_core import HookResult
from amplifier_core.hooks import HookRegistry

from amplifier_context_core import (
    ContextError,
    ContextManager,
    Plugins,
    approx_token_counter,
    count_tokens,
    load_config,
)
from amplifier_context_core.events import COMPACTION, POST_COMPACT, PRE_COMPACT
from amplifier_context_core.items import ContextItem
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.thinking_checker import BoundThinkingChecker

Message = dict[str, Any]

PROVIDER = SimpleNamespace(name="anthropic", default_model="claude-opus-5-5")
TOOLS = ("read", "bash", "find", "grep")
READS = ("view", "measured", "explain", "chapters", "search", "load", "room")
CHANGES = ("compact", "echo", "pin", "unpin", "short", "undo", "forget", "interrupt", "item")
PATIENCE = 30.0  # seconds that any call may take


class HostileHost:
    """One session.

    Args:
        seed: of all that it does.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._store = MemoryStore()
        self._budget = self._random.choice([700, 1_500, 4_000, 9_000])
        self._tools = ["read"]
        self._prompt: str | None = "You are 0."  # None: the factory fails
        self._checker = BoundThinkingChecker()
        self._depth = 0  # of handlers
        self._count = 0
        self.manager = self._opened()

    async def run(self) -> None:
        """Carry out a session to its end."""
        shared_cache.clear()
        try:
            for _ in range(self._random.randint(1, 5)):
                await self._turn()
                if self._random.random() < 0.3:
                    await self._resume()
            await self._resume()
            await self._turn()
            contents = [str(message["content"]) for message in await self.manager.get_messages()]
            own = [content for content in contents if "item " in content]
            assert len(own) == len(set(own)), "a message is there twice"
        finally:
            await asyncio.wait_for(self.manager.close(), PATIENCE)

    def _opened(self) -> ContextManager:
        hooks = HookRegistry()
        settings = {"token_counter": "heuristic", "max_tokens": self._budget, "token_meter": "actual"}
        manager = ContextManager(load_config(settings), store=self._store, plugins=Plugins(), hooks=hooks)
        manager.compactor.tools = lambda: {name: SimpleNamespace(description=name) for name in self._tools}
        manager._prompt.factory = self._system_prompt
        for event in (PRE_COMPACT, COMPACTION, POST_COMPACT):
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
        if self._depth < 3:
            self._depth += 1
            try:
                await self._do(self._random.choice((*READS, *CHANGES)))
            finally:
                self._depth -= 1
        return HookResult(action="continue")

    async def _turn(self) -> None:
        chance = self._random.random
        await self._add({"role": "user", "content": self._text(60)})
        for _ in range(self._random.randint(1, 4)):
            await self._noise()
            if chance() < 0.3:
                self._tools = self._random.sample(TOOLS, self._random.randint(1, 4))
            if chance() < 0.2:
                self._prompt = self._random.choice([None, "You are 1.", "You are 2."])
            try:
                view = await asyncio.wait_for(self._requested(), PATIENCE)
            except ContextError:
                assert self._prompt is None
                self._prompt = "You are 3."
                continue
            if view is None or all(message["role"] == "system" for message in view):
                continue  # it was given up, or the turn was taken back
            broken = [*check_request(view), *self._checker.check(view, self._tools)]
            assert not broken, broken[:3]
            await self._answer(view)

    async def _requested(self) -> list[Message] | None:
        """Return the request that the loop sends; None if it gives it up."""
        if self._random.random() < 0.5:
            view = await self.manager.get_messages_for_request(None, PROVIDER)
        else:
            result = await self._measured()
            if self._random.random() < 0.2 or not await result["transaction"].commit():
                result["transaction"].rollback()
                return None
            view = result["base_view"]
        self.manager.on_request()
        return view

    async def _answer(self, view: list[Message]) -> None:
        thought = {"type": "thinking", "thinking": "hm", "signature": f"sig-{self._count}"}
        answer: Message = {"role": "assistant", "content": [thought, {"type": "text", "text": self._text(30)}]}
        names = [f"call-{self._count}-{index}" for index in range(self._random.randint(1, 2))]
        answer["tool_calls"] = [{"id": name, "tool": "read", "arguments": {}} for name in names]
        self._checker.answered(view, answer, self._tools)
        beside = asyncio.create_task(self._do(self._random.choice(("view", "compact", "explain", "pin", "short"))))
        await self._add(answer)
        for name in names:
            await self._add({"role": "tool", "tool_call_id": name, "content": self._text(120)})
        await asyncio.wait_for(beside, PATIENCE)

    async def _noise(self) -> None:
        for _ in range(self._random.randint(0, 3)):
            task = asyncio.create_task(self._do(self._random.choice((*READS, *CHANGES))))
            if self._random.random() < 0.5:
                await self._cancel(task)
            await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), PATIENCE)
            assert task.cancelled() or task.exception() is None or isinstance(task.exception(), ContextError)

    async def _cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task at one of its awaits, and wait until what it began is done."""
        for _ in range(self._random.randint(0, 30)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,), timeout=PATIENCE)
        while self.manager.history._work or self.manager.compactor.is_compacting:
            await asyncio.sleep(0.0005)

    async def _add(self, message: Message) -> None:
        """Add a message; at times the call is cancelled, and repeated if the message is not there."""
        task = asyncio.create_task(self.manager.add_message(copy.deepcopy(message)))
        if self._random.random() < 0.15:
            await self._cancel(task)
            if message["content"] in [stored["content"] for stored in await self.manager.get_messages()]:
                return
            task = asyncio.create_task(self.manager.add_message(copy.deepcopy(message)))
        await asyncio.wait_for(task, PATIENCE)

    async def _resume(self) -> None:
        """Open the session again. Its first view is the last one, or a host sets its own copy without thinking."""
        if self._random.random() < 0.5:
            self._depth = 3  # or a handler changes what is compared
            await self.manager.get_messages_for_request(None, PROVIDER)  # the first may compact
            before = await self.manager.get_messages_for_request(None, PROVIDER)
            await self.manager.close()
            self.manager = self._opened()
            assert await self.manager.get_messages_for_request(None, PROVIDER) == before
            self._depth = 0
            return
        await self.manager.close()
        self.manager = self._opened()
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

    # -- calls of a host ---------------------------------------------------------------------------------------------

    async def _do(self, name: str) -> None:
        manager, mark = self.manager, f"m{self._random.randint(1, self._count + 1)}"
        calls: dict[str, Any] = {
            "view": lambda: manager.get_messages_for_request(None, PROVIDER),
            "measured": self._measured,
            "explain": manager.explain,
            "chapters": manager.chapters,
            "search": lambda: manager.search("item"),
            "load": manager.load,
            "room": lambda: manager.recall_room(100),
            "compact": manager.compact,
            "echo": self._echo,
            "pin": lambda: manager.pin(mark),
            "unpin": lambda: manager.pin(mark, pinned=False),
            "short": lambda: manager.compact_summary(f"call-{self._count}-0", "a short form"),
            "undo": manager.undo,
            "forget": lambda: manager.forget([mark]),
            "interrupt": manager.interrupt,
            "item": lambda: manager.pool.add(ContextItem("x", f"item of {self._count}", f"i{self._count % 3}")),
        }
        try:
            await calls[name]()
        except ContextError:  # the factory failed, or there is no such message to pin
            return

    async def _echo(self) -> None:
        await self.manager.set_messages(await self.manager.get_messages())

    async def _measured(self) -> dict[str, Any]:
        async def count(view: list[Message]) -> dict[str, Any]:
            tokens = count_tokens(view, approx_token_counter)
            measurement = {"kind": "provider_count", "source": "test", "input_tokens": tokens}
            limits = {"estimated_input_tokens": tokens, "input_limit_tokens": self._budget + 500}
            return {"dispatch": view, "budget_decision": {**limits, "measurement": measurement}}

        return await self.manager.measured_request_view(provider=PROVIDER, count_view=count)
