"""A process of its own that is killed while a model is asked: `python -m tests.summary.asking URL`."""

from __future__ import annotations

import asyncio
import sys

from amplifier_context_core.stores import open_store
from amplifier_context_testing.summaries.writers import Writer
from tests.manager.support import work
from tests.summary.support import BUDGET, summary_manager


async def main(url: str) -> None:
    """Add messages until a model is asked that never answers, and print how many there are."""
    writer = Writer("never")
    manager = summary_manager(writer, store=open_store(url))
    for number, message in enumerate(work(60, output=900), 1):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            await asyncio.sleep(0.02)
        if writer.pending:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
