"""Where an assistant message came from: what the message states, and what its provider reported.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import fields

from ..messages.parsing import Message, metadata_of
from ..messages.usage import Response, usage_of

# Keys in which loops and providers state where a message came from.
_MODEL, _PROVIDER = ("model", "model_id"), ("provider", "provider_id")
_FINISH, _ERROR, _USAGE = ("finish_reason", "stop_reason"), ("error",), "usage"


def response_of(message: Message, reported: Response | None) -> Response | None:
    """Return what the message states, completed by the last response event."""
    metadata = metadata_of(message)

    def named(names: tuple[str, ...]) -> str | None:
        for name in names:
            for place in (message, metadata):
                value = place.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    usage = usage_of(message.get(_USAGE)) or usage_of(metadata.get(_USAGE))
    stated = Response(named(_MODEL), named(_PROVIDER), usage, named(_FINISH), named(_ERROR))
    if stated == Response():
        return reported
    if reported is None:
        return stated
    names = (one.name for one in fields(Response))
    return Response(*(getattr(stated, name) or getattr(reported, name) for name in names))
