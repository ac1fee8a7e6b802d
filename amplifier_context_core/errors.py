"""The errors of the context managers, as a tree, with the party that should act.

    ContextError                 catch this one to catch them all
    ├── InvalidMessage           the caller: a message is malformed; the field is named, nothing was stored
    ├── ConfigError              the operator: a config value is impossible; key, value and range are named
    ├── ContextOverflow          the operator: with `strict: true`, what must be kept does not fit the budget
    ├── PinRefused               the caller: a pin would outgrow the share that pins may fill
    ├── PluginError              the plug-in's author: a plug-in failed; it is named, history is untouched
    ├── UnregisteredHookError    the caller: a saved queue or pool names a hook that is not registered
    ├── NotLoaded                the caller: an entry is only in the store; `load` brings the whole history
    └── StoreError               the operator: history could not be written or read; nothing acknowledged was lost
        ├── OutcomeUnknown       the caller: a change may have been made; the next call finds out
        ├── SessionInUse         the operator: another writer holds the session; it is named
        ├── SessionLost          the operator: another writer has the session now, or its store does not have it
        └── NotErased            the caller: messages read as replaced, but files hold the former text; repeat the call

The text of an error names the session, setting or field and the next step. It never quotes a message: transcripts hold
secrets, and errors end up in logs.
"""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str, package: str = "amplifier-context-core") -> str:
    """Return the command that installs an extra of a package, with the Python that has the core: no other finds it."""
    return f"{shlex.quote(sys.executable)} -m pip install '{package}[{extra}]'"


class ContextError(Exception):
    """Base of all errors raised by the context managers."""


class InvalidMessage(ContextError, ValueError):
    """A message cannot be stored as it is."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}; the message was not stored")
        self.field = field  # path of the offending field inside the message, e.g. ``tool_calls[0].id``


class ConfigError(ContextError, ValueError):
    """A configuration value, or an argument in place of one, is impossible."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key  # the config key or argument at fault


class ContextOverflow(ContextError):
    """The messages that no strategy may remove are larger than the budget (raised only with ``strict: true``)."""


class PinRefused(ContextError, ValueError):
    """A pin was refused: the mark is unknown, or pins would exceed their share of the budget."""


class PluginError(ContextError):
    """A plug-in failed; the message names it."""


class StoreError(ContextError):
    """A store could not complete an operation. The text names the next step."""


class OutcomeUnknown(StoreError):
    """A change may have been made: a server gave no answer, or a disk did not confirm what was written to it.

    The next call for the session finds out, and the history then holds what the store holds. So a message may be part
    of the history although adding it raised this error. Look for it before you add it again.
    """


class SessionInUse(StoreError):
    """Another writer holds the session."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(
            f"session {session_id!r} is in use by {holder}; end that one, or go on in a fork (`on_conflict: fork`)"
        )
        self.holder = holder  # the other writer, e.g. ``pid 4711 on host-a``


class SessionLost(StoreError):
    """The lease of a session went to another writer, or the session is gone from its store; nothing was written."""

    def __init__(self, session_id: str, holder: str = "") -> None:
        super().__init__(
            f"session {session_id!r} was taken over by {holder}; nothing was written. Resume it there, or go on in a "
            "fork (`on_conflict: fork`)"
            if holder
            else f"session {session_id!r} is gone from the store: it was deleted, or the store lost its data; nothing "
            "was written. Restore it from a backup, or go on in a fork with what memory holds (`on_conflict: fork`)"
        )
        self.holder = holder  # the writer that has it now, e.g. ``pid 4711 on host-a``; empty if the session is gone


class NotErased(StoreError):
    """Messages were replaced, but their former text is not erased from every file yet.

    They read as replaced from now on. The same call, made again, finishes the erasure.
    """


class NotLoaded(ContextError, LookupError):
    """An entry is only in the store, because the session was resumed and its whole history was not loaded yet."""

    def __init__(self, index: int) -> None:
        super().__init__(f"message {index + 1} is not in memory; `await context.load()` brings the whole history")
        self.index = index  # of the entry, from 0


class UnregisteredHookError(ContextError, KeyError):
    """No hook is registered under a name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"hook {name!r} is not registered; register it before the saved queue or pool is loaded")
        self.name = name  # of the hook

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show the text in quotes
