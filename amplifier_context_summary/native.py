"""A provider's own compaction in place of a model's text (`summary_writer: native`).

The contract is that of Amplifier's providers (`supports_native_compaction`, `compact_context`,
`validate_compacted_context`). The provider is given the beginning of the session's last request, and returns a carrier:
a message that takes its place in requests to the same model. The carrier is checked and kept, and never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.economics.meter import Key
from amplifier_context_core.errors import InvalidMessage
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.carriers import can_read, is_carrier
from amplifier_context_core.messages.parsing import Message, parse_message
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.view.chapter_carriers import sent_tokens, with_carrier, without_carriers

from .asking import Asking, Outdated, OutOfDate
from .call import Caller, CallFailed
from .checks import RejectedAnswer
from .limits import Prices
from .records import Records

log = logging.getLogger(__name__)


def is_offered(provider: Any) -> bool:
    """True if a provider compacts a conversation itself."""
    supports = getattr(provider, "supports_native_compaction", None)
    if not callable(supports) or not callable(getattr(provider, "compact_context", None)):
        return False
    try:
        return supports() is True
    except Exception as problem:  # noqa: BLE001 - other people's code
        log.warning("supports_native_compaction of a provider failed (%s)", type(problem).__name__)
        return False


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a provider is asked to compact: the beginning of the session's last request, the system prompt first."""

    messages: list[Message]
    size: int
    first: int
    last: int
    key: Key


async def compacted(
    asking: Asking,
    caller: Caller,
    conversation: Conversation,
    tools: Mapping[str, Any],
    prices: Prices,
    counter: TokenCounter,
    outdated: Outdated,
) -> Message | None:
    """Return the carrier that a provider makes of a conversation; None, with the reason noted, if there is none."""
    about: dict[str, Any] = {
        "first": f"m{conversation.first}",
        "last": f"m{conversation.last}",
        "input_tokens": conversation.size,
        "again": False,
        "writer": "native",
    }
    if refused := asking.refusal(conversation.size, prices, caller.max_output // 2):
        asking.note("refused", refused)
        return None
    ask = partial(caller.compact, conversation.messages, tools)
    try:
        result = await asking.call(ask, conversation.size, prices, about, outdated)
        carrier = checked(result, caller.provider, conversation.key)
        if count_message_tokens(carrier, counter) >= conversation.size:
            raise RejectedAnswer("it is larger than what it replaces")
    except OutOfDate as problem:
        await asking.given_up(about, str(problem))
        return None
    except CallFailed as problem:
        asking.failed(about, problem.reason, problem)
        return None
    except RejectedAnswer as problem:
        asking.failed(about, problem.reason)
        return None
    await asking.succeeded(about)
    return carrier


def checked(result: Mapping[str, Any], provider: Any, key: Key) -> Message:
    """Return a copy of the carrier in what `compact_context` returned, for the model of `key`.

    Raises:
        RejectedAnswer: there is none, or a later request to this model would not be accepted with it.
    """
    message = result.get("message")
    if result.get("kind") != "native" or not isinstance(message, dict):
        raise RejectedAnswer("the provider returned no compaction")
    try:
        carrier, _ = parse_message(cast("dict[str, Any]", message))
    except InvalidMessage:
        raise RejectedAnswer("the provider returned no valid message") from None
    if not is_carrier(carrier) or not can_read(carrier, *key):
        raise RejectedAnswer("the compaction is not for the model of the session")
    validate = getattr(provider, "validate_compacted_context", None)
    try:
        is_valid = not callable(validate) or validate(carrier) is True
    except Exception as problem:  # noqa: BLE001 - other people's code
        raise RejectedAnswer(f"the provider cannot check it ({type(problem).__name__})") from None
    if not is_valid:
        raise RejectedAnswer("the provider does not accept its own compaction")
    return carrier


@dataclass(slots=True)
class Carriers:
    """Puts the newest carrier of a session beside the chapters that it replaces."""

    records: Records

    async def carry(
        self, history: History, segments: tuple[Segment, ...], room: int, counter: TokenCounter
    ) -> tuple[Segment, ...]:
        """Return the segments with the newest carrier, if they fit with it; see `Carry`.

        They must fit for a model that does not read the carrier too: a later request at their budget may be to it.
        """
        made = without_carriers(segments)
        for record in reversed(await self.records.verified(history)):
            if record.carrier is None:
                continue
            carried = with_carrier(segments, record.carrier, record.upto, counter)
            if carried is not None and sent_tokens(carried) <= room:
                made = carried
                break
        return segments if made == segments else made
