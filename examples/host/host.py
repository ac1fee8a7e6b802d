"""A host that finds what a person asked in a view, and one that sends only what its provider does not keep.

    python examples/host/host.py

docs/kernel.md says why.
"""

from __future__ import annotations

import asyncio
from typing import Any

from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, load_config

NO_PERSON = {"context-compaction", "hook"}  # sources of messages in the role of the user that no person wrote


class Chain:
    """What a host sends: the whole view, or what came after the view before."""

    def __init__(self, context: ContextManager, hooks: HookRegistry) -> None:
        self.context = context
        self.known: int | None = None  # messages that the provider keeps; None: send all
        hooks.register("context:prefix_changed", self.changed, 0, name="chain")

    async def changed(self, event: str, data: dict[str, Any]) -> HookResult:
        self.known = None
        return HookResult(action="continue")

    async def to_send(self) -> list[dict[str, Any]]:
        view = await self.context.get_messages_for_request()
        new = view if self.known is None else view[self.known :]
        self.known = len(view)
        return new


async def reading() -> None:
    context = ContextManager(load_config({"max_tokens": 2_000}))
    await context.add_message({"role": "user", "content": "Read all of it."})
    for number in range(40):
        call = {"id": f"c{number}", "tool": "read_file", "arguments": {"path": f"{number}.txt"}}
        await context.add_message({"role": "assistant", "content": None, "tool_calls": [call]})
        await context.add_message({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 40})
        view = await context.get_messages_for_request()
    users = [message for message in view if message["role"] == "user"]
    people = [one for one in users if (one.get("metadata") or {}).get("source") not in NO_PERSON]
    assert users[-1]["content"] != "Read all of it."  # a chapter
    assert people[-1]["content"] == "Read all of it."


async def chaining() -> None:
    hooks = HookRegistry()
    context = ContextManager(load_config({}), hooks=hooks)
    chain = Chain(context, hooks)
    for text in ("One.", "Two.", "Three."):
        await context.add_message({"role": "user", "content": text})
        assert [message["content"] for message in await chain.to_send()] == [text]
    await context.forget(["m1"])
    assert [message["content"] for message in await chain.to_send()] == ["(erased)", "Two.", "Three."]
    await context.set_messages((await context.get_messages())[1:])
    assert [message["content"] for message in await chain.to_send()] == ["Two.", "Three."]


if __name__ == "__main__":
    asyncio.run(reading())
    asyncio.run(chaining())
    print("both send what they should")
