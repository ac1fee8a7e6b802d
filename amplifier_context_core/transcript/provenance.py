"""Where an assistant message came from: what the message states, and what its provider reported.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from ..messages.parsing import Message, metadata_of
from ..messages.usage import Response, usage_of

# Keys in which loops and providers state where a message came from.
_MODEL, _PROVIDER = ("model", "model_id"), ("provider", "provider_id")
_FINISH, _ERROR, _USAGE = ("finish_reason", "stop_reason"), ("error",), "usage"
_PROVENANCE = frozenset((*_MODEL, *_PROVIDER, *_FINISH, *_ERROR, _USAGE))


def response_of(message: Message, reported: Response | None) -> Response | None:
    """Return what the message states, completed by the last response event."""
    metadata = metadata_of(message)
    if _PROVENANCE.isdisjoint(message) and _PROVENANCE.isdisjoint(metadata):
        return reported

    def named(names: tuple[str, ...]) -> str | None:
        for name in names:
            for place in (message, metadata):
                value = place.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    usage = usage_of(message.get(_USAGE)) or usage_of(metadata.get(_USAGE))
    model, provider, finish, error = named(_MODEL), named(_PROVIDER), named(_FINISH), named(_ERROR)
    if reported is None:
        if not (usage or model or provider or finish or error):
            return None
        return Response(model, provider, usage, finish, error)
    return Response(
        model or reported.model,
        provider or reported.provider,
        usage or reported.usage,
        finish or reported.finish_reason,
        error or reported.error,
        reported.prefix,
    )
