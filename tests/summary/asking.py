"""A process that is killed while a model is asked: `python -m tests.summary.asking URL SESSION ANSWERS`."""

import asyncio
import sys

from amplifier_context_core.stores import open_store
from tests.messages import work
from tests.summary.scripted import HeldBack, summary_manager, until_asked


async def main(url: str, session_id: str, answers: int) -> None:
    """Add messages until a model does not answer, after so many answers; print how many there are."""
    provider = HeldBack(answers + 1)
    manager = summary_manager(provider, store=open_store(url), session_id=session_id)
    sys.stdout.write(f"{await until_asked(manager, provider, work(120, output=900))}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
