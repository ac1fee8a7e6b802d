"""What the tests of the manager share: a manager with settings, a history put in, a view that is held to the rules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager, TokenCounter, approx_token_counter, count_tokens, load_config
from amplifier_context_core.compaction.strategies import Strategy
from amplifier_context_testing import checked, coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.places import Place

Message = dict[str, Any]


class Counter:
    """Counts as the heuristic does, and what it was asked to count. Its name is always the same."""

    exact = False

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        self.characters += len(text)
        return approx_token_counter(text)

    def __repr__(self) -> str:
        return "tests.Counter"


_where: tuple[str, Path] = ("memory", Path())
_opened: list[ContextManager] = []


def begin(backend: str, folder: Path) -> None:
    """Managers keep their histories here from now on."""
    global _where
    _where = (backend, folder)


async def end() -> None:
    """Close the managers that were made."""
    while _opened:
        await _opened.pop().store.close()


def new_manager(
    *,
    counter: TokenCounter | None = None,
    hooks: Any = None,
    session_id: str = "s",
    strategies: Sequence[Strategy] | None = None,
    **config: Any,
) -> ContextManager:
    """A manager of its own; keyword arguments are config keys."""
    settings = load_config({"token_counter": "heuristic", **config})
    backend, folder = _where
    place = Place(backend, folder / str(len(_opened)))
    manager = ContextManager(
        settings,
        session_id=place.session_id(session_id),
        hooks=hooks,
        counter=counter,
        ladder=strategies,
        store=place.store(),
    )
    _opened.append(manager)
    return manager


async def feed(manager: ContextManager, messages: Iterable[Message]) -> ContextManager:
    """Add messages one by one; the manager."""
    for message in messages:
        await manager.add_message(message)
    return manager


async def ask(manager: ContextManager, budget: int | None = None, provider: Any = None) -> list[Message]:
    """A view, valid for every provider and within the budget."""
    view = await manager.get_messages_for_request(budget, provider)
    checked(view)
    if budget is not None:
        assert size(view) <= budget, f"{size(view)} tokens, over the budget of {budget}"
    return view


def size(messages: Iterable[Message]) -> int:
    """Tokens of messages, counted by the test itself."""
    return count_tokens(messages, approx_token_counter)


def rounds(number: int, *, start: int = 0, output: int = 400) -> list[Message]:
    """Tool rounds of about `output` characters each, all different, ids included."""
    talk = ConversationBuilder()
    for place in range(start, start + number):
        call = f"call_{place}"
        talk.call(("read", {"path": f"src/file_{place}.py"}), ids=[call])
        text = f"file {place}: " + f"line_{place} = value_{place * 7919 % 10_007} " * (output // 25)
        talk.result(call, text[:output])
    return talk.messages


def work(number: int, *, task: str = "Do the work.", output: int = 400) -> list[Message]:
    """A task and tool rounds that follow it."""
    return [{"role": "user", "content": task}, *rounds(number, output=output)]


def session(messages: int, seed: int = 1) -> list[Message]:
    """A coding session."""
    return list(coding_session(messages, seed))


def text(view: Iterable[Message]) -> str:
    """Everything a view shows, as JSON text."""
    return json.dumps(list(view), ensure_ascii=False)


def digest(messages: Iterable[Message]) -> str:
    """Hash of messages, byte for byte."""
    return hashlib.sha256(text(messages).encode("utf-8", "surrogatepass")).hexdigest()


def shared_prefix(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages at the start are byte-identical, but for the mark of the last chapter, which is not sent."""

    def sent(message: Message) -> Message:
        metadata = {key: value for key, value in (message.get("metadata") or {}).items() if key != "cache_breakpoint"}
        return {**message, "metadata": metadata}

    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if text([sent(old)]) != text([sent(new)]):
            return place
    return min(len(before), len(after))


def bare(messages: Iterable[Message]) -> list[Message]:
    """Messages without the timestamp that storing adds."""
    plain: list[Message] = []
    for message in messages:
        kept = {key: value for key, value in message.items() if key != "metadata"}
        metadata = {key: value for key, value in (message.get("metadata") or {}).items() if key != "timestamp"}
        plain.append({**kept, "metadata": metadata} if metadata else kept)
    return plain


def marks(manager: ContextManager) -> list[str]:
    """Marks of the history, in order."""
    return [entry.mark for entry in manager.snapshot()]
