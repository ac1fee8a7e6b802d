"""A research assistant: tools fill the pool of a session, and the model selects from it by descriptions.

`fetch_document` returns items; the session puts them into its pool. The view lists their ids and descriptions, never
their contents. The model selects ids from that list, and `answer` reads only those documents. The model is scripted, so
this needs no network: in a clone, where `make demo` built `.venv`, run
`.venv/bin/python examples/research_assistant/research_assistant.py`. Elsewhere it needs the packages of core,
context-simple and testing, and `amplifier-core`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from amplifier_context_core.items import ContextItem, ContextPool, ContextQueue, tool_from_function
from amplifier_context_testing import mount_plan, session

DOCUMENTS = {
    "q3-earnings": ("Q3 earnings: revenue, gross margin, guidance", "Revenue was $42M, gross margin 68 percent."),
    "roadmap": ("Product roadmap: integrations, mobile app", "The mobile app enters beta in the second quarter."),
    "incident": (
        "Incident report of November: outage, root cause, fix",
        "The outage of 47 minutes came from an exhausted connection pool. The pool size was doubled.",
    ),
}
QUESTION = "What caused the outage in November, and what was the fix?"


async def fetch_document(doc_id: str, memory: ContextQueue | None = None) -> ContextItem[str]:
    """Fetch a document. The session keeps it in its pool."""
    description, body = DOCUMENTS[doc_id]
    if memory is not None:
        await memory.append(ContextItem(f"fetched {doc_id}"))
    return ContextItem(body, description, doc_id)


async def answer(relevant_ids: list[str], pool: ContextPool) -> str:
    """Return the contents of the selected documents, each with its id, to answer from."""
    known = {item.id for item in pool}
    return "\n".join(f"[{id}] {pool.get(id).content}" for id in relevant_ids if id in known)


class Model:
    """The scripted model: fetch all documents, select by description, answer from the selected ones."""

    def __call__(self, request: Any) -> Any:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        texts = [str(message.get("content")) for message in messages]
        catalogue = re.findall(
            r"^- \[([\w-]+)\] (.+)$", next((t for t in reversed(texts) if "pool, by id:" in t), ""), re.M
        )
        if not catalogue:
            return {"calls": [{"tool": "fetch_document", "arguments": {"doc_id": one}} for one in DOCUMENTS]}
        if messages[-1]["role"] == "tool" and texts[-1].startswith("["):
            return f"From {texts[-1]}"
        wanted = set(re.findall(r"\w{4,}", QUESTION.lower()))
        selected = [id for id, text in catalogue if len(wanted & set(re.findall(r"\w{4,}", text.lower()))) >= 2]
        return {"calls": [{"tool": "answer", "arguments": {"relevant_ids": selected}}]}


def model(config: Any) -> Model:
    """Return the policy for provider-replay."""
    return Model()


async def mount_tools(coordinator: Any, config: Any = None) -> None:
    """Mount both tools."""
    for function in (fetch_document, answer):
        tool = tool_from_function(function)
        await coordinator.mount("tools", tool, name=tool.name)


async def run(script: str = "research_assistant:model") -> tuple[str, ContextPool[Any], ContextQueue[Any]]:
    """Ask the question in a session of the kernel; return the answer, and the session's pool and queue."""
    plan = mount_plan("context-simple", script=script, window=20_000, provider={"check": True}, tools={"tool-docs": {}})
    async with session(plan, modules={"tool-docs": mount_tools}) as running:
        answered = await running.execute(QUESTION)
        capability = running.coordinator.get_capability
        return answered, capability("context.pool"), capability("context.queue")


async def main() -> None:
    """Print the answer and the catalogue."""
    answered, pool, queue = await run()
    print(f"question   {QUESTION}\n{answered}\n\npool\n{pool.catalogue()}\n\nqueue\n{queue.history()}")


if __name__ == "__main__":
    asyncio.run(main())
