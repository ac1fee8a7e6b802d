"""Memory files: texts a fresh session begins with, as system messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import aiofiles
import aiofiles.os

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.tokens import count_message_tokens

log = logging.getLogger(__name__)

_LARGEST = 16_000_000  # bytes: what no window holds is not read


async def remember(files: Sequence[Path], manager: ContextManager) -> None:
    """Add the texts of these files to a session without a history.

    A file that is missing or cannot be read is warned of and left out.

    Raises:
        ConfigError: together they are larger than the budget; their sizes are named, nothing was added.
    """
    texts = {path: text for path in map(_at_home, files) if (text := await _text(path)).strip()}
    counter = await manager.token_counter()
    # Marked as a hook's: a host's own system prompt takes the place of plain system messages (KERNEL.md).
    messages = [
        {"role": "system", "content": text, "metadata": {"source": "hook", "hook_name": f"memory:{path}"}}
        for path, text in texts.items()
    ]
    sizes = [count_message_tokens(message, counter) for message in messages]
    if sum(sizes) > manager.config.max_tokens:
        named = ", ".join(f"{path} {size:,}" for path, size in zip(texts, sizes, strict=True))
        raise ConfigError(
            "memory_files",
            f"{sum(sizes):,} tokens do not fit the budget of {manager.config.max_tokens:,} (`max_tokens`): {named}",
        )
    if messages:
        await manager.history.set(messages)  # all or none


def _at_home(path: Path) -> Path:
    """The path with its ``~`` expanded, where that names a home there is."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


async def _text(path: Path) -> str:
    try:
        size = (await aiofiles.os.stat(path)).st_size
        if size > _LARGEST:
            raise ConfigError("memory_files", f"{path} has {size:,} bytes; no window holds that")
        async with aiofiles.open(path, encoding="utf-8", errors="replace") as file:
            return await file.read()
    except OSError as problem:
        log.warning("memory file %s is left out: %s", path, problem.strerror or type(problem).__name__)
        return ""
