"""Checks that every store makes before it does anything, with the same errors."""

from __future__ import annotations

import re
from collections.abc import Container

from ..errors import ConfigError, StoreError

NOTES = "notes."  # how the ids of sessions begin that are the notes of a project
_NOTES_ID = re.compile(r"notes\.[a-z0-9_.-]{0,60}-[0-9a-f]{8}")  # `NOTES` and `default_paths.project_name`
_MAX_ID_BYTES = 200  # with the suffixes of files it fits the 255 bytes that file systems allow


def check_session_id(session_id: str) -> str:
    """Raises `ConfigError`: the id cannot be the name of a folder, in logs and in keys."""
    problem = ""
    if not isinstance(session_id, str) or not session_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        problem = "must be text of at least one character; without one, Amplifier makes an id"
    elif len(session_id) > _MAX_ID_BYTES or len(session_id.encode("utf-8", "replace")) > _MAX_ID_BYTES:
        problem = f"is longer than {_MAX_ID_BYTES} bytes"
    elif session_id.startswith(".") or "/" in session_id or "\\" in session_id:
        problem = f"{session_id!r} is a path, or begins with a dot"
    elif not session_id.isprintable():
        problem = f"{session_id!r} holds characters that cannot be printed"
    if problem:
        raise ConfigError("session_id", problem)
    return session_id


def check_conversation_id(session_id: str) -> str:
    """Raises `ConfigError`: the id is one as a project's notes have, which other sessions trust, or it is invalid."""
    if is_notes(check_session_id(session_id)):
        raise ConfigError("session_id", f"{session_id!r} names notes of a project; begin it with other than {NOTES!r}")
    return session_id


def is_notes(session_id: str) -> bool:
    """True if a session is the notes of a project, also where file systems ignore case, and dots at the end."""
    return _NOTES_ID.fullmatch(session_id.casefold().rstrip(". ")) is not None


def recovered_id(number: int, taken: Container[str]) -> str:
    """Return an id for a session whose own id could not be read; no other session has it."""
    name = f"recovered-{number}"
    while name in taken:
        name += "-again"
    return name


def url_path(url: str, what: str, examples: str) -> str:
    """Return the path in a URL of files, ``scheme:PATH``. Errors say `what` it names, with `examples`. They do not
    quote the URL: one that is meant for a server may hold a password.
    """
    scheme, _, path = url.partition(":")
    is_odd = path != path.strip() or any(ord(char) < 32 or ord(char) == 127 for char in path)
    if is_odd or not path or path.startswith(("//", ":", "file:")):
        raise ConfigError(
            "store", f"'{scheme}:' takes {what}, without a server, spaces at its ends or control characters: {examples}"
        )
    return path


def derived_session_id(session_id: str, suffix: str) -> str:
    """Return a session id and a suffix as one id, shortened to the permitted length."""
    room = _MAX_ID_BYTES - len(suffix.encode())
    return session_id.encode()[:room].decode("utf-8", "ignore") + suffix


def check_index(session_id: str, index: int, length: int) -> None:
    """Raises `StoreError`: a history of `length` entries cannot be cut at the index."""
    if not 0 <= index <= length:
        raise StoreError(f"session {session_id!r} holds {length:,} messages, not {index:,}; read its extent again")


def no_session(session_id: str) -> StoreError:
    return StoreError(f"there is no session {session_id!r}")


def session_exists(session_id: str) -> StoreError:
    return StoreError(f"there is a session {session_id!r} already; choose another id, or delete it")
