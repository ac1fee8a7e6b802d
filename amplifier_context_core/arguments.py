"""Checks of what other code passes to a session: of another type, an argument is an error that names it.

Tools and hooks get the session as a set of capabilities, and no type checker sees their calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from .errors import ConfigError


def checked_text(name: str, value: object) -> str:
    """Raises `ConfigError`: the value is no text; the argument is named."""
    if not isinstance(value, str):
        raise _refused(name, "text", value)
    return value


def checked_texts(name: str, value: object, what: str = "a list of texts") -> list[str]:
    """One text alone is no list of texts. `what` is what the value must be. Raises `ConfigError`: it is no list, or
    holds another thing; the argument is named.
    """
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _refused(name, what, value)
    given = cast("Iterable[object]", value)
    return [checked_text(f"{name}[{index}]", item) for index, item in enumerate(given)]


def checked_flag(name: str, value: object) -> bool:
    """A text such as ``"false"`` is neither true nor false. Raises `ConfigError`: the value is neither; the argument is
    named.
    """
    if not isinstance(value, bool):
        raise _refused(name, "true or false", value)
    return value


def checked_count(name: str, value: object) -> int:
    """Raises `ConfigError`: the value is no whole number; the argument is named."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(name, "a whole number", value)
    return value


def _refused(name: str, what: str, value: object) -> ConfigError:
    return ConfigError(name, f"must be {what}, got {type(value).__name__}")
