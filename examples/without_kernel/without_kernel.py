"""The core in a program without the kernel: a framework's own history, and the `ContextStore` of other frameworks.

    python examples/without_kernel/without_kernel.py

docs/extending.md says what an edit is.
"""

from __future__ import annotations

import asyncio
from typing import Any

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.compat import MemoryContextStore, Message, TextBlock, compact_context


async def history_of_a_framework() -> None:
    context = ContextManager(load_config({"max_tokens": 600}))

    async def before_request(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What a framework calls with its history; what it returns is sent, and is its history from then on."""
        await context.set_messages(messages)
        view = await context.get_messages_for_request()
        return [{key: value for key, value in message.items() if key != "metadata"} for message in view]

    messages = [{"role": "user", "content": "Count to a thousand, aloud."}]
    for number in range(100):
        messages = await before_request(messages)
        messages.append({"role": "assistant", "content": f"And now comes number_{number}."})
    await context.set_messages(messages)
    assert len(messages) < 60
    assert len(await context.get_messages()) == 101  # nothing is lost
    assert (await context.recall("m3"))["content"] == "And now comes number_1."


async def context_store() -> None:
    context = MemoryContextStore()
    for number in range(30):
        await context.append(Message("user" if number % 2 == 0 else "assistant", [TextBlock(f"message {number}")]))

    async def complete(prompt: str) -> str:  # any model: text in, text out
        return "They counted."

    shorter = await compact_context(context, complete, max_messages=20, keep_recent=6)
    assert shorter is not None
    assert len(shorter) < 10
    assert len(await context.get_history()) == 30
    assert (await context.search("message 7"))[0].text == "message 7"


if __name__ == "__main__":
    asyncio.run(history_of_a_framework())
    asyncio.run(context_store())
    print("nothing is lost")
