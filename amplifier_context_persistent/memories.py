"""Memory files: texts a fresh session begins with, as system messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.view.budget import context_window, model_of, name_of, request_budget

log = logging.getLogger(__name__)

_LARGEST = 16_000_000  # bytes: what no window holds is not read


async def remember(files: Sequence[Path], providers: Callable[[], Iterable[object]], manager: ContextManager) -> None:
    """Add the texts of these files to a session without a history.

    A file that is missing, cannot be read or is no text is logged and left out.

    Args:
        files: the texts.
        providers: gives those a request may go to: the smallest window of theirs is what the texts must fit.
        manager: of that session.

    Raises:
        ConfigError: together they are larger than a request may be; their sizes are named, nothing was added.
    """
    texts = {path: text for path in map(_at_home, files) if (text := await _text(path)).strip()}
    if not texts:
        return
    counter = await manager.token_counter()
    messages = [_message(path, text) for path, text in texts.items()]
    sizes = [count_message_tokens(message, counter) for message in messages]
    room, limit = _room(manager, providers())
    if sum(sizes) > room:
        named = ", ".join(f"{path} {size:,}" for path, size in zip(texts, sizes, strict=True))
        raise ConfigError("memory_files", f"{sum(sizes):,} tokens do not fit {limit}: {named}")
    await manager.history.set(messages)  # all or none


def _message(path: Path, text: str) -> dict[str, Any]:
    """The system message of a memory file, labelled as the module we replace labels it.

    It is marked as a hook's: a host's own system prompt takes the place of plain system messages (KERNEL.md).
    """
    return {
        "role": "system",
        "content": f"[Context from {path.name}]\n\n{text}",
        "metadata": {"source": "hook", "hook_name": f"memory:{path}"},
    }


def _room(manager: ContextManager, providers: Iterable[object]) -> tuple[int, str]:
    """Tokens the messages of a request may have, whichever provider it goes to, and in words what limits them.

    Providers that do not tell their window say nothing; if none does, it is as without any.
    """
    known: list[object] = [provider for provider in providers if context_window(provider)]
    return min((_room_at(manager, provider) for provider in known or [None]), key=itemgetter(0))


def _room_at(manager: ContextManager, provider: object) -> tuple[int, str]:
    config = manager.config
    budget = request_budget(
        token_budget=None,
        provider=provider,
        max_tokens=config.max_tokens,
        max_tokens_set="max_tokens" in config.model_fields_set,
        output_reserve_fraction=config.output_reserve_fraction,
        safety_margin=config.safety_margin,
    )
    name = name_of(provider)
    room = manager.compactor.limits(budget.tokens, (name, model_of(provider) or "")).capacity
    window = context_window(provider)
    if window is None or budget.capped_from is not None:
        return room, f"the budget of {budget.tokens:,} (`max_tokens`)"
    whose = f" of provider {name}" if name else ""
    return room, f"the context window of {window:,}{whose}, which leaves {room:,} for messages"


def _at_home(path: Path) -> Path:
    """The path with its ``~`` expanded, where that names a home there is."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


async def _text(path: Path) -> str:
    """The text of a file; none, after a line in the log, where it cannot be had."""
    try:
        size = (await aiofiles.os.stat(path)).st_size
        if size > _LARGEST:
            raise ConfigError("memory_files", f"{path} has {size:,} bytes; no window holds that")
        async with aiofiles.open(path, encoding="utf-8") as file:
            text = await file.read()
        if "\0" not in text:
            return text
        problem = "it is no text, it holds null bytes"
    except FileNotFoundError:
        log.warning("memory file %s is left out: there is none", path)
        return ""
    except UnicodeDecodeError as error:
        problem = f"it is no text in UTF-8, see byte {error.start:,}"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    log.error("memory file %s is left out: %s", path, problem)
    return ""
