"""The views that a host may hand back in place of the history: those it was given, or was given by an earlier process.

`transcript/returned_views.py` recognises them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ..compaction.digest import chapter_spans
from ..economics.meter import Key
from ..messages.parsing import Message, text_of
from ..outgoing.provider_messages import provider_messages
from ..rendering.renderer import RenderedMessage
from ..transcript.returned_views import HandedView, Shown
from .candidate import Candidate, ViewRequest
from .compactor import Compactor

# One provider of each rule that changes messages for one provider alone.
SAMPLE_KEYS: tuple[Key, ...] = (("mistral", ""),)


def handed_views(compactor: Compactor, *, merge: bool) -> list[HandedView]:
    return [_handed(one.key, one.all_messages, one.newest_seq, merge=merge) for one in compactor.sent.handed_out]


async def views_of_before(compactor: Compactor, request: ViewRequest, *, merge: bool) -> list[HandedView]:
    """Return the views of a resumed session as its last process handed them out.

    It is not saved which providers they went to: each view comes as each of `SAMPLE_KEYS` gets it, if that differs.
    """
    found: list[HandedView] = []
    async with compactor.lock.hold():
        plan = await compactor.cache.choose(request)
        current = await compactor.cache.all_current(plan.history, plan.interrupted)
        for view in dict.fromkeys((plan.view, *current)):
            own = replace(request, limits=compactor.limits(view.budget, request.key))
            messages = await (await Candidate.of(view, own)).fitted()
            for key in (request.key, *SAMPLE_KEYS):
                handed = _handed(key, (*request.system, *messages), view.newest_seq, merge=merge)
                if handed not in found:
                    found.append(handed)
    return found


def is_dropped_chapter(message: Message, dropped: Collection[int], erased: Collection[int]) -> bool:
    """True if a message is a chapter of a view that was dropped because it may quote what was erased. `dropped`: see
    `SentViews.dropped_chapters`; `erased`: seqs of entries; a chapter that names one may quote it, of any origin.
    """
    spans = chapter_spans(message)
    if not spans:
        return False
    is_ours = hash(text_of(message.get("content")).strip()) in dropped
    return is_ours or any(first <= seq <= last for first, last in spans for seq in erased)


def _handed(key: Key, messages: Iterable[RenderedMessage], newest_seq: int, *, merge: bool) -> HandedView:
    return HandedView(
        [Shown(message, seqs) for message, seqs in provider_messages(key, messages, merge=merge)], newest_seq
    )
