"""A provider's own compaction in place of a model's text (`summary_writer: native`).

The contract is that of Amplifier's providers (`supports_native_compaction`, `compact_context`,
`validate_compacted_context`). The provider is given the beginning of the session's last request, and returns a carrier:
a message that takes its place in requests to the same model. The carrier is checked and kept, and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.economics.meter import Key
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.carriers import can_read, is_carrier
from amplifier_context_core.messages.parsing import Message, parse_message
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens

from .chapter_carriers import sent_tokens, with_carrier, without_carriers
from .checks import RejectedAnswer
from .records import Records


def is_offered(provider: Any) -> bool:
    """True if a provider compacts a conversation itself."""
    try:
        return provider.supports_native_compaction() is True and callable(provider.compact_context)
    except Exception:  # noqa: BLE001 - other people's code; not every provider has these methods
        return False


def checked_carrier(result: Mapping[str, Any], provider: Any, key: Key, most: int, counter: TokenCounter) -> Message:
    """Return a copy of the carrier in what `compact_context` returned, for the model of `key`.

    Args:
        most: tokens of what it replaces.

    Raises:
        RejectedAnswer: there is none, or a later request to this model would not be accepted with it.
    """
    validate = getattr(provider, "validate_compacted_context", None)
    try:
        carrier, _ = parse_message(result["message"])
        is_valid = is_carrier(carrier) and can_read(carrier, *key) and (validate is None or validate(carrier) is True)
    except Exception as problem:  # noqa: BLE001 - other people's code
        raise RejectedAnswer(f"the provider's compaction cannot be read ({type(problem).__name__})") from None
    if result.get("kind") != "native" or not is_valid:
        raise RejectedAnswer("the provider returned no compaction for the model of the session")
    if count_message_tokens(carrier, counter) >= most:
        raise RejectedAnswer("it is larger than what it replaces")
    return carrier


async def with_newest_carrier(
    records: Records, history: History, segments: tuple[Segment, ...], room: int, counter: TokenCounter
) -> tuple[Segment, ...]:
    """Return segments with the newest carrier beside the chapters that it replaces, if they fit with it; see `Carry`.

    They must fit for a model that does not read the carrier too: a later request at their budget may be to it.
    """
    made = without_carriers(segments)
    for record in reversed(await records.verified()):
        carried = with_carrier(segments, record.carrier, record.upto, counter) if record.carrier else None
        if carried and sent_tokens(carried) <= room:
            made = carried
            break
    return segments if made == segments else made
