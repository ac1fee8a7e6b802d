"""Why a provider writes the prefix of a request into its cache again, although it had a request before.

At such a moment another change of the view costs nothing extra: no cached prefix is given up. So a compaction that is
nearly due is made then, and what was made in the background is put into the view.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ..rendering.renderer import RenderedMessage
from ..transcript.transcript import Snapshot
from .cold_cache import pause_of
from .sent_view import SentView


class PrefixBreak(StrEnum):
    """Why the prefix is written again. Reports and events contain the values."""

    PROVIDER_CHANGE = "other provider or model"
    SYSTEM_PROMPT = "changed system prompt"
    COLD = "cold cache"
    COMPACTION = "compaction"


def prefix_break(
    before: SentView | None, system: Sequence[RenderedMessage], history: Snapshot, *, cache_ttl: int, asked: bool
) -> PrefixBreak | None:
    """Return why the provider must write the prefix of the next request again, whatever its view; None if it need not.

    A compaction is not among the answers: it is the caller that makes it.

    Args:
        before: the last view that was sent to the same provider and model; None if there was none.
        system: the system prompt of the next request.
        history: what is stored now.
        cache_ttl: seconds after which the provider forgets a prefix; 0 for never.
        asked: true if another provider or model was sent a view before.
    """
    if before is None and asked:
        return PrefixBreak.PROVIDER_CHANGE
    if before is not None and [shown.message for shown in before.system] != [shown.message for shown in system]:
        return PrefixBreak.SYSTEM_PROMPT
    return PrefixBreak.COLD if pause_of(history).outlasts(cache_ttl) else None
