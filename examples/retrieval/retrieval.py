"""Retrieval-augmented context without the kernel: each request holds what the history has about its question.

A conversation is kept in SQLite and outlives its process. A request is the question, the newest messages, and before
them the older messages that `ContextStore.search` finds for the question, quoted as data. So its size stays the same
however long the conversation is. The model is scripted, so this needs no network:
`python examples/retrieval/retrieval.py` in a clone.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from amplifier_context_core import open_store
from amplifier_context_core.compat import ContextStore, Message, StoredContext
from amplifier_context_core.rendering.quoting import quoted, single_line

RECENT = 4  # messages that a request always holds
FOUND = 3  # older messages that it holds besides, at most
QUESTION = "Which port does the billing service listen on?"
FACTS = {
    "billing": "The billing service listens on port 8443.",
    "search": "The search service listens on port 9200.",
    "backup": "The backup of the ledger runs at 03:15.",
}


async def request_for(context: ContextStore, question: str) -> list[Message]:
    """Return the messages to send to a model for a question."""
    recent = (await context.get_history())[-RECENT:]
    # The newest messages may be among the found ones, so more are asked for.
    found = [one for one in await context.search(question, FOUND + RECENT) if one not in recent][:FOUND]
    # A message of several lines could pose as several messages.
    record = "\n".join(f"{message.role}: {single_line(message.text)}" for message in found)
    before = [Message("user", quoted("earlier in this conversation", record))] if found else []
    return [*before, *recent, Message("user", question)]


def model(request: Sequence[Message]) -> str:
    """The scripted model: it answers from the sentences of its request, and knows nothing besides."""
    question = words(request[-1].text)
    sentences = [line.split(": ", 1)[-1] for message in request[:-1] for line in message.text.splitlines()]
    best = max(sentences, key=lambda one: len(question & words(one)), default="")
    return best if len(question & words(best)) > 1 else "I do not know."


def words(text: str) -> set[str]:
    """Return the longer words of a text."""
    return set(re.findall(r"\w{4,}", text.lower()))


async def talk(context: ContextStore, turns: int) -> None:
    """State the facts, then talk of other things for a while."""
    for fact in FACTS.values():
        await context.extend([Message("user", f"Note: {fact}"), Message("assistant", "Noted.")])
    for number in range(turns):
        await context.append(Message("user", f"Please look at chapter {number} of the report."))
        await context.append(Message("assistant", f"Chapter {number} is about the weather, and looks fine."))


async def run(folder: Path, turns: int = 200) -> tuple[list[Message], str]:
    """Talk, come back later, and ask. Return the request and the answer."""
    url = f"sqlite:{folder / 'conversations.db'}"
    store = open_store(url)
    await talk(StoredContext(store, "project"), turns)
    await store.close()
    store = open_store(url)  # another day, another process
    context = StoredContext(store, "project")
    request = await request_for(context, QUESTION)
    answer = model(request)
    await context.extend([request[-1], Message("assistant", answer)])
    await store.close()
    return request, answer


async def main() -> None:
    """Print the request and the answer."""
    with tempfile.TemporaryDirectory() as folder:
        request, answer = await run(Path(folder))
    for message in request:
        print(f"{message.role:>9}  {message.text}")
    print(f"   answer  {answer}")


if __name__ == "__main__":
    asyncio.run(main())
