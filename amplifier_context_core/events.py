"""Events of the context, emitted to the kernel's hooks.

Handlers are code of other parties. One that raises, hangs or returns nonsense must not harm a request. So every
emission has its own timeout, and a failure is only logged.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

log = logging.getLogger(__name__)

PRE_COMPACT = "context:pre_compact"
POST_COMPACT = "context:post_compact"
COMPACTION = "context:compaction"
WARNING = "context:warning"
PREFIX_CHANGED = "context:prefix_changed"
USAGE = "context:usage"
EVENTS = (PRE_COMPACT, POST_COMPACT, COMPACTION, WARNING, PREFIX_CHANGED, USAGE)

_TIMEOUT = 10.0  # seconds; long enough for an approval hook to look up a policy


@dataclass(slots=True)
class _Emission:
    """One call of `emit`. Tasks that a handler started may outlive it; `over` is then True."""

    owner: object
    over: bool = False


_emission: ContextVar[_Emission | None] = ContextVar("amplifier_context_emission", default=None)


class Hooks(Protocol):
    """The part of the kernel's hook registry that is used."""

    async def emit(self, event: str, data: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class HookDecision:
    """The merged result of the handlers."""

    denied: bool = False  # a handler denied, or wants a user to be asked first
    injected: str | None = None  # text that the strategies of the compaction are given


async def emit(hooks: Hooks | None, owner: object, event: str, data: dict[str, Any]) -> HookDecision:
    """Emit an event to the handlers. Never raises. `inside_handler(owner)` is True in code that the handlers run.

    `data` is plain JSON: the kernel turns anything else into text.
    """
    if hooks is None:
        return HookDecision()
    emission = _Emission(owner)
    token = _emission.set(emission)
    try:
        result = await asyncio.wait_for(hooks.emit(event, data), _TIMEOUT)
    except TimeoutError:
        log.warning("handlers of %s took longer than %s s; going on without them", event, _TIMEOUT)
        return HookDecision()
    except Exception as problem:  # noqa: BLE001 - handlers are other people's code
        log.warning("a handler of %s failed: %s", event, type(problem).__name__)
        return HookDecision()
    finally:
        emission.over = True
        with suppress(ValueError):  # its loop was closed before it ended: Python ends it in whatever context runs then
            _emission.reset(token)
    action = getattr(result, "action", "continue")
    contents = [getattr(item, "content", None) for item in getattr(result, "context_injections", None) or ()]
    injected = [content for content in contents if isinstance(content, str) and content]
    single = getattr(result, "context_injection", None)
    if not injected and action == "inject_context" and isinstance(single, str):
        injected = [single]
    return HookDecision(action in ("deny", "ask_user"), "\n\n".join(injected) or None)


def inside_handler(owner: object) -> bool:
    """True if the calling code runs in a handler of an event that `owner` is emitting right now."""
    emission = _emission.get()
    return emission is not None and emission.owner is owner and not emission.over
