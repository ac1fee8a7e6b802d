"""Distant history: what lies further back than a first compaction looks at round by round, folded at once.

A view without a checkpoint shows all of its history. For an imported history of many budgets that is not possible, and
to render and digest each of its rounds would take minutes. So rounds that lie several budgets back become chapters
before anything is rendered. A chapter lists the newest words of people and counts the other rounds.

The distance is measured in tokens that a view would show at least. A history that fits a view is therefore never
folded here, however long its originals are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..messages.parsing import text_of
from ..messages.tokens import TokenCounter
from ..rendering.renderer import Renderer
from ..rendering.rounds import Round, rounds_of
from ..rendering.sendable import is_left_out
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from .checkpoint import Segment, segment_of
from .digest import chapter_of, digest_round

_REACH = 8  # budgets of history before the newest entry that a first compaction looks at round by round
_LISTED = 500  # rounds of people that chapters list, the newest; more would not survive the first condensing
_LINE_SHARE = 0.25  # of a round's tokens that its entry may cost: the default of `FoldRounds`


def distant_end(history: Snapshot, body: int, budget: int, renderer: Renderer) -> int:
    """Return the index of the first entry that is not distant; `body`, where leading instructions end, if none is.

    The budget is in tokens; the renderer knows the limits of tool outputs.
    """
    enough = _REACH * budget
    seen = 0
    end = len(history)
    while end > body and seen < enough:
        end -= 1
        seen += _least_shown(history[end], renderer)
    if seen < enough:
        return body
    while end > body and history[end].answered_ids:
        end -= 1  # a call stays with the results that follow it
    return end


def _least_shown(entry: Entry, renderer: Renderer) -> int:
    """Return the least tokens that an entry costs in a view: tool outputs are clipped, or shown as tables."""
    if is_left_out(entry.message):
        return 0
    if not entry.answered_ids:
        return entry.tokens
    text = text_of(entry.message.get("content"))
    if renderer.tables and text[:1] in ("[", "{"):
        return 0  # how small a table is shows only when it is made
    results = len(entry.answered_ids)
    within_bytes = entry.tokens * results * renderer.output_bytes // max(4 * len(text), 1)
    return min(entry.tokens, results * renderer.output_limit, within_bytes)


def fold_distant(
    history: Snapshot, body: int, end: int, pins: Collection[int], renderer: Renderer, counter: TokenCounter
) -> list[Segment]:
    """Return the entries from index `body` to `end` as chapters around the rounds that must stay.

    The first and the newest round of a person stay, pinned rounds, rounds that carry loaded tools or a provider's own
    compaction, and rounds with a result from after the latter.
    """
    rounds = rounds_of(history[body:end])
    people = [number for number, round_ in enumerate(rounds) if any(map(_is_of_person, round_.entries))]
    carriers = [round_.first for round_ in rounds if round_.is_native_context]
    kept = [number for number, round_ in enumerate(rounds) if _stays(round_, pins, carriers)]
    listed = {number: rounds[number] for number in people[-_LISTED:]}
    segments: list[Segment] = []
    start = 0
    for number in (*sorted({*kept, *people[:1], *people[-1:]}), len(rounds)):
        if number > start:
            spoken = [round_ for place, round_ in listed.items() if start <= place < number]
            segments.append(_chapter(rounds[start:number], spoken, history, counter))
        if number < len(rounds):
            for entry in rounds[number].entries:
                renderer.register_calls(entry)
            rendered = renderer.render(rounds[number])
            segments.append(segment_of(rounds[number], rendered.messages, rendered.fixes))
        start = number + 1
    return segments


def _is_of_person(entry: Entry) -> bool:
    return entry.human and not is_left_out(entry.message)


def _stays(round_: Round, pins: Collection[int], carriers: Collection[int]) -> bool:
    is_pinned = round_.is_pinned or any(entry.seq in pins for entry in round_.entries)
    is_state = round_.holds_loaded_tools or round_.is_native_context
    is_parted = round_.last - round_.first >= len(round_.entries)  # few are: not each is compared with all carriers
    return is_pinned or is_state or (is_parted and round_.has_result_after(carriers))


def _chapter(replaced: Sequence[Round], spoken: Sequence[Round], history: Snapshot, counter: TokenCounter) -> Segment:
    span = min(round_.first for round_ in replaced), max(round_.last for round_ in replaced)
    tokens = sum(round_.tokens for round_ in replaced)
    known: set[str] = set()
    entries = [digest_round(round_, known, counter, share=_LINE_SHARE) for round_ in spoken]
    left_out = len(replaced) - len(entries)
    chapter, shown = chapter_of(entries, counter, left_out=left_out, original_tokens=tokens, span=span)
    first = history.find(span[0])
    turn = first.turn_id if first else ""
    return Segment(*span, turn, (shown,), shown.tokens, tokens, "folded", "distant", None, chapter)
