"""The prompt: `prompt.md` of this package, or a file that the config names."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from amplifier_context_core.errors import ConfigError

_MOST_CHARS = 40_000  # a prompt beyond this would cost more than what it asks about
REPAIR = (
    "Your answer could not be used: {reason}. Answer once more, with the whole text under the five headings, and "
    "nothing else."
)
FOCUS = "The text is to dwell on this: {focus}"
ASK = "Write the whole summary of the session up to {last}, in at most about {words:,} words ({tokens:,} tokens)."


@cache
def shipped_prompt() -> str:
    """Return the prompt of this package."""
    return files("amplifier_context_summary").joinpath("prompt.md").read_text(encoding="utf-8")


def prompt_text(path: Path | None) -> str:
    """Return the prompt: the text of a file, or the shipped one if there is none.

    Raises:
        ConfigError: the file cannot be read, holds no text, or is longer than 40,000 characters.
    """
    if path is None:
        return shipped_prompt()
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as problem:
        raise ConfigError("summary_prompt", f"{path} cannot be read ({type(problem).__name__})") from None
    if not text.strip():
        raise ConfigError("summary_prompt", f"{path} is empty")
    if len(text) > _MOST_CHARS:
        raise ConfigError("summary_prompt", f"{path} has {len(text):,} characters; at most {_MOST_CHARS:,} are taken")
    return text
