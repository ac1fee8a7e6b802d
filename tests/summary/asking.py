"""A process of its own that is killed while a model is asked.

`python -m tests.summary.asking URL SESSION ANSWERS`
"""

from __future__ import annotations

import asyncio
import sys

from amplifier_context_core.stores import open_store
from tests.messages import work
from tests.summary.scripted import HeldBack, summary_manager, until_asked


async def main(url: str, session_id: str, answers: int) -> None:
    """Add messages until a model is asked that does not answer, and print how many there are.

    Args:
        url: of the store.
        session_id: of the session.
        answers: that the model gives before.
    """
    provider = HeldBack(answers + 1)
    manager = summary_manager(provider, store=open_store(url), session_id=session_id)
    added = await until_asked(manager, provider, work(120, output=900))
    sys.stdout.write(f"{added}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
