"""Lines: a checkpoint and what came after it, kept up as history grows.

A view is a checkpoint and every entry since. A `Line` holds one such pair, rendered, and takes in new entries at the
cost of those entries only. Between two checkpoints it only grows at its end. A few lines are kept, one for each budget
in use, so that a side call with a small window does not disturb the long view, and going back to the larger budget
finds the old prefix unchanged.

Not locked: the manager lets one task in at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace

from .checkpoint import Checkpoint, Draft, Piece, piece_of
from .floor import clip_floor
from .messages import INSTRUCTING
from .render import OPENING, Rendered, Renderer, Rendering, Summaries
from .rounds import Round, RoundList
from .strategies.base import floored
from .tokens import TokenCounter, count_message_tokens
from .transcript import Entry, Snapshot

_BREATHE = 500  # entries taken in between two breaths of the event loop
_REACH = 8  # budgets of history before the newest entry that a first checkpoint looks at one by one
_KEPT = 4  # lines
_SAME_ROOM = 0.02  # of a room: how far another may be from it to be the same for an attempt to compact
_SERVED = 32  # budgets whose line is remembered
NEAR = 0.8  # of a budget: a line made for at least that much may serve it


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to compact a line, so that it is not made again before something changed.

    Attributes:
        room: tokens the view could hold then.
        until: tokens the view must have grown to before another attempt is worth it.
        coverable: entries a checkpoint could stand for then.
        stuck: what must stay does not fit the room: more attempts would not help.
    """

    room: int
    until: int
    coverable: int
    stuck: bool

    def speaks_for(self, room: int) -> bool:
        """Does it say anything about a request with this room? (The meter moves room a little all the time.)"""
        return abs(room - self.room) <= _SAME_ROOM * self.room


class Line:
    """One checkpoint (or none) and the rendered rounds since.

    Attributes:
        checkpoint: what stands for the beginning of the history; None when all of it is shown.
        budget: tokens of the requests it was made for.
        attempt: the last attempt to compact it; None before any.
        asked: answers of the model since the checkpoint.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        budget: int,
        counter: TokenCounter,
        *,
        output_limit: int,
        output_bytes: int,
        summaries: Summaries,
        keep: Collection[int],
        revision: int = -1,
        tables: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.budget = budget
        self.attempt: Attempt | None = None
        self._keep = keep
        self._counter = counter
        self._output_limit = output_limit
        self._output_bytes = output_bytes
        self._tables = tables
        self._summaries = summaries
        self._opening = Rendered(OPENING, count_message_tokens(OPENING, counter))
        self._revision = revision
        self._interrupted: frozenset[int] = frozenset()
        self._reset()

    def _reset(self) -> None:
        """Forget the rounds since the checkpoint; they are taken in again."""
        self._renderer = Renderer(
            self._counter,
            self._output_limit,
            self._output_bytes,
            self._interrupted,
            self._summaries,
            self.checkpoint.made_at if self.checkpoint else 0,
            self._tables,
        )
        self._start = 0  # entries before the first round: a past that was skipped
        self._position = self.checkpoint.covered if self.checkpoint else 0
        self._skipped: list[Piece] = []  # floor of a history too long to look at as a whole
        self._rounds = RoundList()
        self._places: dict[int, int] = {}  # seq -> position in the history, of the entries since the checkpoint
        self._renderings: list[Rendering] = []
        self._changed = 0  # renderings from here on must be made anew
        self._touched: set[int] = set()  # and these before it
        self._tokens = 0
        self.asked = 0  # answers of the model since the checkpoint
        if self.checkpoint:
            for piece in self.checkpoint.pieces:
                for entry in piece.round.entries if piece.round else ():
                    self._renderer.claim(entry)

    async def take_in(self, history: Snapshot, unchanged: int, interrupted: frozenset[int]) -> bool:
        """Bring the line up to this history; False when its checkpoint no longer stands for the beginning of it.

        Args:
            history: what is stored now.
            unchanged: entries after the leading instructions that are as they were when the line last looked.
            interrupted: turns whose open calls were stopped.
        """
        if self._revision not in (-1, history.revision):
            if self.checkpoint and unchanged < self.checkpoint.covered:
                return False
            if unchanged < self._position:
                self._reset()
        if interrupted != self._interrupted:
            self._interrupted = interrupted
            self._reset()
        self._revision = history.revision
        body = history.leading  # positions count from here: the system prompt stands outside
        if self._position == 0:
            await self._skip_far_past(history, body)
        while self._position < len(history) - body:
            start = body + self._position
            for place, entry in enumerate(history[start : start + _BREATHE], self._position):
                self._add(entry, place)
            self._position = min(self._position + _BREATHE, len(history) - body)
            self._render()
            if self._position < len(history) - body:
                await asyncio.sleep(0)
        return True

    @property
    def tokens(self) -> int:
        """Tokens of the view without the system prompt."""
        before = self.checkpoint.tokens if self.checkpoint else sum(piece.tokens for piece in self._skipped)
        return before + self._tokens + (self._opening.tokens if self._needs_opening() else 0)

    @property
    def grown(self) -> int:
        """Tokens that came since the checkpoint."""
        return self._tokens

    def view(self) -> list[Rendered]:
        """The messages of the view without the system prompt."""
        shown: list[Rendered] = list(self.checkpoint.shown) if self.checkpoint else []
        shown.extend(message for piece in self._skipped for message in piece.shown)
        for rendering in self._renderings:
            shown.extend(rendering.messages)
        return [self._opening, *shown] if self._needs_opening() else shown

    @property
    def coverable(self) -> int:
        """Entries, counted from the first after the system prompt, that a checkpoint may stand for now."""
        first = self.checkpoint.covered if self.checkpoint else self._start
        return first + sum(len(held.entries) for held in self._rounds.rounds[: self._cut()])

    def draft(self, system_tokens: int, room: int) -> tuple[Draft, list[Piece], int]:
        """The pieces a compaction may work on, those it may not, and what the first cost as shown now (tokens).

        It may not work on rounds still open: their mends must not be frozen.

        Args:
            system_tokens: of the system prompt.
            room: tokens the view may hold. Open rounds count for at most half of it: beyond that they are clipped when
                the view is handed out, and nothing else must suffer for what will be over in a moment.
        """
        cut = self._cut()
        both = list(zip(self._rounds.rounds, self._renderings, strict=True))
        old = list(self.checkpoint.pieces) if self.checkpoint else self._skipped
        fresh = [_piece(held, rendering) for held, rendering in both[:cut] if rendering.messages]
        pieces = [*map(self._afresh, old), *fresh]
        later = [_piece(held, rendering) for held, rendering in both[cut:] if rendering.messages]
        opening = self._opening.tokens if self._needs_opening() else 0
        waiting = min(sum(piece.tokens for piece in later), room // 2)
        cost = sum(piece.tokens for piece in (*old, *fresh))
        return Draft(tuple(pieces), system_tokens + opening + waiting), later, cost

    def _afresh(self, piece: Piece) -> Piece:
        """A piece that was clipped for want of room at another time gets another chance."""
        if piece.rule != "floor" or piece.round is None:
            return piece
        return _piece(piece.round, self._renderer.render(piece.round))

    def fitted(self, room: int) -> tuple[list[Rendered], int]:
        """The view with the rounds that no checkpoint can cover yet clipped to fit `room` (tokens), and its tokens.

        Only for the one that is handed out now: the line itself stays as it is.
        """
        cut = self._cut()
        both = list(zip(self._rounds.rounds, self._renderings, strict=True))
        head = list(self.checkpoint.shown) if self.checkpoint else []
        head.extend(message for piece in self._skipped for message in piece.shown)
        head.extend(message for _, rendering in both[:cut] for message in rendering.messages)
        if self._needs_opening():
            head.insert(0, self._opening)
        before = sum(shown.tokens for shown in head)
        rest = Draft(tuple(floored(_piece(held, rendering), "open") for held, rendering in both[cut:]))
        # Names and ids cannot be clipped, so that what is aimed at is not always reached at once.
        for aim in (1.0, 0.9, 0.7, 0.5):
            rest = clip_floor(rest, int(max(0, room - before) * aim), self._counter)
            if before + rest.tokens <= room:
                break
        return [*head, *(shown for piece in rest.pieces for shown in piece.shown)], before + rest.tokens

    def shows(self, seq: int) -> bool:
        """Is this entry in the view as it was stored?"""
        for piece in self.checkpoint.pieces if self.checkpoint else ():
            if piece.state != "kept" and any(shown.seq == seq for shown in piece.shown):
                return False
        return any(message.seq == seq for message in self.view())

    def reveal(self, seq: int, history: Snapshot) -> None:
        """Show the round of an entry verbatim again, in its place, if the checkpoint folded or shortened it."""
        if self.checkpoint is None or self.shows(seq):
            return
        held = round_of(seq, history)
        if held is None:
            return
        for entry in held.entries:
            self._renderer.claim(entry)
        fresh = _piece(held, self._renderer.render(held))
        pieces: list[Piece] = []
        placed = False
        for piece in self.checkpoint.pieces:
            if piece.round is not None and piece.first == held.first:
                pieces.append(fresh)
                placed = True
                continue
            if not placed and piece.first > held.last:
                pieces.append(fresh)
                placed = True
            pieces.append(piece)
        if not placed:
            pieces.append(fresh)
        self.checkpoint = replace(self.checkpoint, pieces=tuple(pieces), tokens=sum(piece.tokens for piece in pieces))

    def pieces(self) -> list[Piece]:
        """Everything the view shows, piece by piece, for reports."""
        pieces = list(self.checkpoint.pieces) if self.checkpoint else list(self._skipped)
        pieces.extend(
            _piece(held, rendering)
            for held, rendering in zip(self._rounds.rounds, self._renderings, strict=True)
            if rendering.messages
        )
        return pieces

    @property
    def output_limit(self) -> int:
        """Tokens above which a single tool output is clipped."""
        return self._output_limit

    @property
    def revision(self) -> int:
        """The history's revision it was last brought up to."""
        return self._revision

    @property
    def mends(self) -> dict[int, tuple[str, ...]]:
        """What was mended, by the lowest seq of the round."""
        return {
            held.first: rendering.mends
            for held, rendering in zip(self._rounds.rounds, self._renderings, strict=True)
            if rendering.mends
        }

    # -- taking in ---------------------------------------------------------------------------------------------------

    def _add(self, entry: Entry, place: int) -> None:
        self._places[entry.seq] = place
        self._renderer.claim(entry)
        self.asked += entry.role == "assistant"
        count = len(self._rounds)
        changed = self._rounds.add(entry)
        if len(self._rounds) <= count and len(self._rounds) < len(self._renderings):
            self._changed = min(self._changed, changed)  # rounds were joined: all behind moved up
        elif changed < self._changed:
            self._touched.add(changed)

    def _render(self) -> None:
        rounds = self._rounds.rounds
        for index in self._touched:
            if index < min(self._changed, len(self._renderings)):
                fresh = self._renderer.render(rounds[index])
                self._tokens += fresh.tokens - self._renderings[index].tokens
                self._renderings[index] = fresh
        self._touched.clear()
        for gone in self._renderings[self._changed :]:
            self._tokens -= gone.tokens
        del self._renderings[self._changed :]
        for held in rounds[self._changed :]:
            rendering = self._renderer.render(held)
            self._renderings.append(rendering)
            self._tokens += rendering.tokens
        self._changed = len(rounds)

    async def _skip_far_past(self, history: Snapshot, body: int) -> None:
        """Leave the far past of an imported giant unrendered, but for what must stay."""
        enough = _REACH * self.budget
        seen = 0
        start = len(history)
        while start > body and seen < enough:
            start -= 1
            seen += history[start].tokens
            if start % 5_000 == 0:
                await asyncio.sleep(0)
        while start > body and not (
            history[start].human or (history[start].role == "assistant" and not history[start].calls)
        ):
            start -= 1
        if start == body or seen < enough:
            return
        for held in await self._kept_of_far_past(history, body, start):
            for entry in held.entries:
                self._renderer.claim(entry)
            self._skipped.append(_piece(held, self._renderer.render(held)))
        self._position = self._start = start - body

    async def _kept_of_far_past(self, history: Snapshot, start: int, end: int) -> list[Round]:
        """Rounds between two positions that must stay: the first and the last a human wrote, pins, loaded tools."""
        kept: list[Round] = []
        last_human: Round | None = None
        rounds = RoundList()
        for index in range(start, end):
            rounds.add(history[index])
            if len(rounds) < 5_000 and index < end - 1:
                continue
            closed = rounds.closed if index < end - 1 else len(rounds)
            for held in rounds.rounds[:closed]:
                task = held.is_human and last_human is None
                pinned = held.is_pinned or any(entry.seq in self._keep for entry in held.entries)
                if task or pinned or held.holds_loaded_tools:
                    kept.append(held)
                if held.is_human:
                    last_human = held
            rounds = RoundList(entry for held in rounds.rounds[closed:] for entry in held.entries)
            await asyncio.sleep(0)
        if last_human is not None and last_human not in kept:
            kept.append(last_human)
        return kept

    def _cut(self) -> int:
        """How many leading rounds may be covered: all closed, none with an entry behind one of the rest."""
        first = self.checkpoint.covered if self.checkpoint else self._start
        cut = ends = 0
        furthest = first - 1
        for index, held in enumerate(self._rounds.rounds[: self._rounds.closed]):
            furthest = max(furthest, *(self._places[entry.seq] for entry in held.entries))
            ends += len(held.entries)
            if furthest == first + ends - 1:
                cut = index + 1
        return cut

    def _needs_opening(self) -> bool:
        for piece in self.checkpoint.pieces if self.checkpoint else self._skipped:
            for shown in piece.shown:
                if shown.message["role"] not in INSTRUCTING:
                    return shown.message["role"] != "user"
        for rendering in self._renderings:
            for shown in rendering.messages:
                if shown.message["role"] not in INSTRUCTING:
                    return shown.message["role"] != "user"
        return False


class LineBook:
    """The lines in use."""

    def __init__(self) -> None:
        self._lines: list[Line] = []  # least recently used first
        self._serving: dict[int, Line] = {}  # budget -> the line that served it last

    def candidates(self, budget: int) -> list[Line]:
        """Lines that may serve a budget, the one that served it last first, then those that hold most."""
        last = self._serving.get(budget)
        near = [line for line in self._lines if line.budget >= NEAR * budget and line is not last]
        near.sort(key=lambda line: line.tokens, reverse=True)
        return [last, *near] if last else near

    def source(self, budget: int) -> Line | None:
        """The line a new checkpoint for this budget is made from: its own, else the smallest that is larger."""
        last = self._serving.get(budget)
        if last:
            return last
        larger = [line for line in self._lines if line.budget >= NEAR * budget]
        return min(larger, key=lambda line: line.budget, default=None)

    def serve(self, budget: int, line: Line) -> None:
        """Note that a line serves a budget now."""
        if line in self._lines:
            self._lines.remove(line)
        self._lines.append(line)
        self._serving.pop(budget, None)
        self._serving[budget] = line
        if len(self._serving) > _SERVED:
            del self._serving[next(iter(self._serving))]
        if len(self._lines) > _KEPT:
            self.drop(self._lines[0])

    @property
    def serving(self) -> Collection[tuple[int, Line]]:
        """Budgets, and the line that served each last."""
        return tuple(self._serving.items())

    def replace(self, old: Line, new: Line) -> None:
        """A line goes on from a new checkpoint, for all budgets it served."""
        self._serving = {budget: new if line is old else line for budget, line in self._serving.items()}
        if old in self._lines:
            self._lines.remove(old)

    def drop(self, line: Line) -> None:
        """Forget a line."""
        if line in self._lines:
            self._lines.remove(line)
        self._serving = {budget: kept for budget, kept in self._serving.items() if kept is not line}

    def clear(self) -> None:
        """Forget all lines."""
        self._lines.clear()
        self._serving.clear()

    @property
    def lines(self) -> Collection[Line]:
        """All lines."""
        return tuple(self._lines)


def round_of(seq: int, history: Snapshot, reach: int = 1_000) -> Round | None:
    """The round of an entry; its call or results are looked for within `reach` entries."""
    place = next((index for index, entry in enumerate(history) if entry.seq == seq), None)
    if place is None:
        return None
    for held in RoundList(history[max(0, place - reach) : place + reach]).rounds:
        if any(entry.seq == seq for entry in held.entries):
            return held
    return None


def _piece(held: Round, rendering: Rendering) -> Piece:
    return piece_of(held, rendering.messages, rendering.mends)
