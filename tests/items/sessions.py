"""Shared by the tests of items in sessions: tools that return some, and sessions that are asked and answered."""

from collections.abc import Iterable
from typing import Any

from amplifier_context_core import ContextManager, Store, load_config
from amplifier_context_core.items import ContextItem, tool_from_function
from tests.managers import ask, feed, new_manager
from tests.messages import Message, says, user

PROMPT = user("Read the reports.")
ANSWER = says("I go on.")


async def fetch(doc: str, pages: int = 1) -> ContextItem[str]:
    """Fetch a report."""
    return ContextItem(f"body of {doc}, {pages} pages", f"report {doc}", doc)


async def note(text: Any) -> ContextItem[Any]:
    return ContextItem(text)


async def run(function: Any, **arguments: Any) -> Any:
    return (await tool_from_function(function).execute(arguments)).output


def opened(store: Store, session_id: str = "s") -> ContextManager:
    return ContextManager(load_config({"token_counter": "heuristic"}), session_id=session_id, store=store)


async def asked(manager: ContextManager | None = None) -> ContextManager:
    """A session whose first prompt was requested."""
    manager = await feed(manager or new_manager(), [PROMPT])
    await ask(manager)
    return manager


def lists(messages: Iterable[Message]) -> list[str]:
    return [str(message["content"]) for message in messages if "pool, by id:" in str(message["content"])]
