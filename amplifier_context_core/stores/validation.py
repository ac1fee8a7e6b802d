"""What every store checks before it does anything, and says in the same words."""

from __future__ import annotations

import re
from collections.abc import Container

from ..errors import ConfigError, StoreError

_LONGEST_ID = 200  # bytes; with the suffixes of files it fits the 255 that file systems allow


def check_session_id(session_id: str) -> str:
    """The id itself, if it can be one: it names a folder and stands in logs and keys.

    Raises:
        ConfigError: it is empty, too long, a path, or holds control characters.
    """
    problem = ""
    if not isinstance(session_id, str) or not session_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        problem = "must be text of at least one character"
    elif len(session_id) > _LONGEST_ID or len(session_id.encode("utf-8", "replace")) > _LONGEST_ID:
        problem = f"is longer than {_LONGEST_ID} bytes"
    elif session_id.startswith(".") or "/" in session_id or "\\" in session_id:
        problem = f"{session_id!r} is a path, or begins with a dot"
    elif not session_id.isprintable():
        problem = f"{session_id!r} holds characters that cannot be printed"
    if problem:
        raise ConfigError("session_id", problem)
    return session_id


def recovered_id(number: int, taken: Container[str]) -> str:
    """Return an id for a session of which the id could not be read, one that no other session has."""
    name = f"recovered-{number}"
    while name in taken:
        name += "-again"
    return name


def is_recovered(session_id: str) -> bool:
    """True if an id is one of those that `recovered_id` gives."""
    return re.fullmatch(r"recovered-\d+(-again)*", session_id) is not None


def url_path(address: str, what: str, examples: str) -> str:
    """Return the path in an address of files, ``scheme:PATH``.

    Args:
        address: of the store.
        what: the path names, for the error.
        examples: of addresses that are right, for the error.

    Raises:
        ConfigError: the address has no path, or the form of another kind of address. It is not quoted: what was meant
            for a server's may hold a password.
    """
    scheme, _, path = address.partition(":")
    problem = ""
    if not path.strip():
        problem = "needs"
    elif path.startswith("//"):
        problem = "goes to no server; after it comes"
    elif path.startswith((":", "file:")):
        problem = "takes no address of another kind; after it comes"
    elif path != path.strip() or any(ord(char) < 32 or ord(char) == 127 for char in path):
        problem = "takes no space at either end and no control character; after it comes"
    if problem:
        raise ConfigError("store", f"'{scheme}:' {problem} {what}, as in {examples}")
    return path


def derived_session_id(session_id: str, suffix: str) -> str:
    """An id made of another one and a suffix, cut so that it can be one."""
    room = _LONGEST_ID - len(suffix.encode())
    return session_id.encode()[:room].decode("utf-8", "ignore") + suffix


def check_index(session_id: str, place: int, length: int) -> None:
    """Raise `StoreError` if a history of `length` entries has no such place to stand for or to keep up to."""
    if not 0 <= place <= length:
        raise StoreError(f"session {session_id!r} holds {length:,} messages, not {place:,}; read its extent again")


def no_session(session_id: str) -> StoreError:
    """The error for a session that is not there."""
    return StoreError(f"there is no session {session_id!r}")


def session_exists(session_id: str) -> StoreError:
    """The error for a session that is there already."""
    return StoreError(f"there is a session {session_id!r} already; choose another id, or delete it")
