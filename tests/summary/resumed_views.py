"""A process of its own that resumes a session of `summary_writer: native`, and prints what it shows, as hashes.

`python -m tests.summary.resumed_views URL SESSION`
"""

from __future__ import annotations

import asyncio
import json
import sys

from amplifier_context_core.stores import open_store
from tests.manager.measured import Counting
from tests.messages import digest
from tests.summary.scripted import BUDGET, summary_manager, wait_for_summaries
from tests.summary.test_native import NATIVE, Odd, carriers


async def main(url: str, session_id: str) -> None:
    """Print the hash of the first view, of a measured one, and of the one after `undo`."""
    provider = Odd(None)
    manager = summary_manager(provider, store=open_store(url), session_id=session_id, **NATIVE)
    first = await manager.get_messages_for_request(BUDGET, provider)
    await wait_for_summaries(manager)
    asked = provider.asked
    result = await manager.measured_request_view(provider=provider, count_view=Counting(ratio=1.0))
    await result["transaction"].commit()
    undone = await manager.undo()
    after = await manager.get_messages_for_request(BUDGET, provider)
    await manager.close()
    found = {
        "first": digest(first),
        "measured": digest(result["base_view"]),
        "carriers": len(carriers(first)),
        "asked": asked,
        "undone": undone["undone"],
        "after": digest(after),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
