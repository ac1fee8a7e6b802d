"""Every error this project raises on purpose, drawn as a tree, with who should act.

    ContextError                 catch this one to catch them all
    ├── InvalidMessage           the caller: a message is malformed; the field is named, nothing was stored
    ├── ConfigError              the operator: a config value is impossible; key, value and range are named
    ├── ContextOverflow          the operator: with `strict: true`, what must be kept does not fit the budget
    ├── PinRefused               the caller: a pin would outgrow the share that pins may fill
    ├── PluginError              the plug-in's author: a plug-in failed; it is named, history is untouched
    └── StoreError               the operator: history could not be written or read; nothing acknowledged was lost

Messages name the session, setting or field and the next step. They never quote what a message says:
transcripts hold secrets, and errors end up in logs.
"""

from __future__ import annotations


class ContextError(Exception):
    """Base of all errors raised by the context managers."""


class InvalidMessage(ContextError, ValueError):
    """A message cannot be stored as it is.

    Attributes:
        field: path of the offending field inside the message, e.g. ``tool_calls[0].id``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}; the message was not stored")
        self.field = field


class ConfigError(ContextError, ValueError):
    """A configuration value, or an argument that stands for one, is impossible.

    Attributes:
        key: the config key or argument at fault.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key


class ContextOverflow(ContextError):
    """What no strategy may remove is larger than the budget (raised under ``strict: true`` only)."""


class PinRefused(ContextError, ValueError):
    """A pin was refused: unknown mark, or pins would outgrow their share of the budget."""


class PluginError(ContextError):
    """A plug-in failed; the message names it."""


class StoreError(ContextError):
    """A store could not do what it was asked; the message says what to do about it."""


class SessionInUse(StoreError):
    """Another writer has claimed the session.

    Attributes:
        holder: who, e.g. ``pid 4711 on host-a``.
    """

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(
            f"session {session_id!r} is in use by {holder}; end that one, or go on in a fork (`on_conflict: fork`)"
        )
        self.holder = holder


class SessionLost(StoreError):
    """The claim on a session went to another writer; nothing was written.

    Attributes:
        holder: who has it now, e.g. ``pid 4711 on host-a``.
    """

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(
            f"session {session_id!r} was taken over by {holder}; nothing was written. Resume it there, or go on in a "
            "fork (`on_conflict: fork`)"
        )
        self.holder = holder


class NotErased(StoreError):
    """Messages were replaced, but what they said is not erased from every file yet.

    They read as replaced from now on; the same call made again finishes it.
    """


class NotLoaded(ContextError, LookupError):
    """An entry is in the store only: the session was resumed, and nobody has asked for all of its history yet.

    Attributes:
        place: where it stands, from 0.
    """

    def __init__(self, place: int) -> None:
        super().__init__(f"message {place + 1} is not in memory; `await context.load()` brings the whole history")
        self.place = place
