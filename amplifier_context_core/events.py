"""Telling the kernel's hooks what happens to the context.

Handlers are other people's code: one that raises, hangs or returns nonsense must not harm a request. So every
emission has a timeout of its own, is made without holding any lock, and its failure is a log line.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

log = logging.getLogger(__name__)

PRE_COMPACT = "context:pre_compact"
POST_COMPACT = "context:post_compact"
COMPACTION = "context:compaction"
WARNING = "context:warning"
EVENTS = (PRE_COMPACT, POST_COMPACT, COMPACTION, WARNING)

_SECONDS = 10.0  # longer than an approval hook needs to look up a policy, shorter than a user's patience


@dataclass(slots=True)
class _Emission:
    """One call of `emit`, as its handlers see it. Tasks they leave behind outlive it; `over` tells them."""

    owner: object
    over: bool = False


_emission: ContextVar[_Emission | None] = ContextVar("amplifier_context_emission", default=None)


class Hooks(Protocol):
    """The part of the kernel's hook registry that is used."""

    async def emit(self, event: str, data: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What handlers said.

    Attributes:
        denied: one said no, or wants a user to be asked first.
        reason: why, for reports.
        injected: text they want whoever folds to know.
    """

    denied: bool = False
    reason: str | None = None
    injected: str | None = None


async def emit(hooks: Hooks | None, owner: object, event: str, data: dict[str, Any]) -> Answer:
    """Tell handlers; never raises.

    Args:
        hooks: the kernel's hook registry.
        owner: who tells; `inside_handler(owner)` is true in code that its handlers run.
        event: name.
        data: plain JSON; the kernel turns anything else into text.
    """
    if hooks is None:
        return Answer()
    emission = _Emission(owner)
    token = _emission.set(emission)
    try:
        result = await asyncio.wait_for(hooks.emit(event, data), _SECONDS)
    except TimeoutError:
        log.warning("handlers of %s took longer than %s s; going on without them", event, _SECONDS)
        return Answer()
    except Exception as problem:  # noqa: BLE001 - handlers are other people's code
        log.warning("a handler of %s failed: %s", event, type(problem).__name__)
        return Answer()
    finally:
        emission.over = True
        _emission.reset(token)
    action = getattr(result, "action", "continue")
    reason = getattr(result, "reason", None)
    injected = [
        content
        for content in (getattr(item, "content", None) for item in getattr(result, "context_injections", None) or ())
        if isinstance(content, str) and content
    ]
    single = getattr(result, "context_injection", None)
    if not injected and action == "inject_context" and isinstance(single, str):
        injected = [single]
    return Answer(
        action in ("deny", "ask_user"), reason if isinstance(reason, str) else None, "\n\n".join(injected) or None
    )


def inside_handler(owner: object) -> bool:
    """Is this code being run by a handler of an event that `owner` is emitting right now?"""
    emission = _emission.get()
    return emission is not None and emission.owner is owner and not emission.over
