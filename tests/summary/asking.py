"""A process of its own that is killed while a model is asked, or after the call failed.

`python -m tests.summary.asking URL SESSION ANSWERS hangs|fails`
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from amplifier_core import ChatRequest, RateLimitError

from amplifier_context_core.stores import open_store
from tests.messages import work
from tests.summary.scripted import BUDGET, Provider, good, summary_manager


async def main(url: str, session_id: str, answers: int, *, fails: bool) -> None:
    """Add messages until a model is asked that does not answer, and print how many there are.

    Args:
        url: of the store.
        session_id: of the session.
        answers: that the model gives before.
        fails: the provider raises an error instead of never answering.
    """
    is_asked = asyncio.Event()

    async def answer(request: ChatRequest, number: int) -> str:
        if number > answers:
            is_asked.set()
            if fails:
                raise RateLimitError("busy", retry_after=3_600.0)
            await asyncio.Event().wait()
        return good(request, number)

    manager = summary_manager(Provider(answer), store=open_store(url), session_id=session_id)
    messages: list[dict[str, Any]] = work(120, output=900)
    for number, message in enumerate(messages, 1):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            while manager.writer.is_running and (fails or not is_asked.is_set()):
                await asyncio.sleep(0.001)
        if is_asked.is_set():
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), fails=sys.argv[4] == "fails"))
