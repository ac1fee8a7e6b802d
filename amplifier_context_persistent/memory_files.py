"""Memory files and notes of the project: texts that a fresh session begins with, as system messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiofiles
import aiofiles.os

from amplifier_context_core import ContextManager
from amplifier_context_core.economics.budget import budget_for, context_window, model_of, name_of
from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.messages.tokens import count_message_tokens

if TYPE_CHECKING:
    from amplifier_context_recall.notes import Notes, ProjectNote

log = logging.getLogger(__name__)

_MAX_BYTES = 16_000_000  # larger than any context window: such a file is not read


async def add_to_session(
    files: Sequence[Path],
    notes: Notes | None,
    notes_tokens: int,
    providers: Callable[[], Iterable[object]],
    manager: ContextManager,
) -> None:
    """Add the texts of files and the notes of the project to a session without a history.

    A file that is missing, cannot be read or holds no text is logged and left out. So are notes that cannot be read.

    Args:
        notes_tokens: that the notes may cost, within what the texts of the files leave.
        providers: returns the providers that a request may go to. The texts must fit the smallest of their windows.

    Raises:
        ConfigError: together the texts are larger than a request may be. The error names their sizes; nothing was
            added.
    """
    texts = {path: text for path in map(_expanded, files) if (text := await _text(path)).strip()}
    kept = await _notes(notes) if notes else []
    if not texts and not kept:
        return
    counter = await manager.token_counter()
    messages = [_message(path, text) for path, text in texts.items()]
    sizes = [count_message_tokens(message, counter) for message in messages]
    room, limit = _room(manager, providers())
    if sum(sizes) > room:
        named = ", ".join(f"{path} {size:,}" for path, size in zip(texts, sizes, strict=True))
        raise ConfigError("memory_files", f"{sum(sizes):,} tokens do not fit {limit}: {named}")
    noted = notes.message(kept, min(notes_tokens, room - sum(sizes)), counter) if notes else None
    messages += [noted] if noted else []
    if messages:
        await manager.history.set(messages)  # all or none


async def _notes(notes: Notes) -> list[ProjectNote]:
    try:
        return await notes.all()
    except StoreError as problem:
        log.error("the notes of the project are left out: %s", problem)
        return []


def _message(path: Path, text: str) -> dict[str, Any]:
    """Return the system message of a memory file, labelled as the replaced module labels it.

    It is marked as a hook's: a host's own system prompt replaces plain system messages (docs/kernel.md).
    """
    return {
        "role": "system",
        "content": f"[Context from {path.name}]\n\n{text}",
        "metadata": {"source": "hook", "hook_name": f"memory:{path}"},
    }


def _room(manager: ContextManager, providers: Iterable[object]) -> tuple[int, str]:
    """Return how many tokens a request may have with any of the providers, and a text that names the limit.

    Providers without a known window are ignored. If no window is known, the limit is that of a request without a
    provider.
    """
    known: list[object] = [provider for provider in providers if context_window(provider)]
    return min((_room_at(manager, provider) for provider in known or [None]), key=itemgetter(0))


def _room_at(manager: ContextManager, provider: object) -> tuple[int, str]:
    budget = budget_for(manager.config, provider=provider)
    name = name_of(provider)
    room = manager.compactor.limits(budget.tokens, (name, model_of(provider) or "")).capacity
    window = context_window(provider)
    if window is None or budget.capped_from is not None:
        return room, f"the budget of {budget.tokens:,} (`max_tokens`)"
    owner = f" of provider {name}" if name else ""
    return room, f"the context window of {window:,}{owner}, which leaves {room:,} for messages"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        return path


async def _text(path: Path) -> str:
    """Return the text of a file. If it cannot be read, log why and return an empty text."""
    try:
        size = (await aiofiles.os.stat(path)).st_size
        if size > _MAX_BYTES:
            raise ConfigError("memory_files", f"{path} has {size:,} bytes, more than any context window holds")
        async with aiofiles.open(path, encoding="utf-8") as file:
            text = await file.read()
        if "\0" not in text:
            return text
        problem = "it is not text, it holds null bytes"
    except FileNotFoundError:
        log.warning("memory file %s is left out: it does not exist", path)
        return ""
    except UnicodeDecodeError as error:
        problem = f"it is not text in UTF-8, see byte {error.start:,}"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    log.error("memory file %s is left out: %s", path, problem)
    return ""
