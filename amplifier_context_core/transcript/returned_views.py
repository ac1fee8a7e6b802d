"""Recognition of a view that a host hands back in place of the history.

Frameworks put what was sent in the place of their own history, and hand that in with new messages after it. Such a list
has chapters and shortened outputs where the history has originals. It is recognised by them: by messages that only a
view that was handed out has, compared as `alignment` compares. A list that begins with all of the last view is one too.
All that the view did not show stays in the history. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ..messages.parsing import SYSTEM_ROLES, Message, ParsedMessage, parse_message, text_of
from ..messages.timestamps import timestamp_of
from .alignment import Alignment, BareKey, bare_key, matching_pairs, semantic_metadata
from .entry import Entry

_NO_CONTENT = ("", (), "")


class Shown(NamedTuple):
    """A message of a view."""

    message: Message  # as the host was given it
    seqs: tuple[int, ...]  # of the entries that it shows; none for a chapter or other text of this package


class HandedView(NamedTuple):
    """A view as a host was given it."""

    shown: Sequence[Shown]  # its messages, in order
    newest_seq: int  # highest seq of the history that it was made of


class HandedViews(NamedTuple):
    """The views that a host may hand back."""

    views: Sequence[HandedView] = ()  # the first is the last that was handed out; empty if none was
    # True for a message of a view that was dropped, because it may quote what was erased.
    is_dropped: Callable[[Message], bool] = lambda message: False


@dataclass(frozen=True, slots=True)
class _Match:
    """What a list has of a view."""

    pairs: list[tuple[int, int]]  # of indices in the view and in the list, rising on both sides
    only_in_views: int  # how many of these are messages that only a view has
    ours: list[Shown]  # the messages of the view, then the entries that came after it
    keys: list[BareKey]  # of these


def may_be_view(
    stored: Sequence[Entry], same: Sequence[object], rest: Sequence[ParsedMessage], handed: HandedViews
) -> bool:
    """False if a list is certainly none of these views. Of a long history with few changes that takes little time.

    `same` are the messages of the list that the history begins with, `rest` those after these.
    """
    if any(handed.is_dropped(message) for message, _ in rest):
        return True
    texts = {(info.role, _text_in(message)) for message, info in rest}
    entries = {entry.seq: entry for entry in stored}
    for shown in (shown for view in handed.views for shown in view.shown):
        is_candidate = (shown.message["role"], _text_in(shown.message)) in texts and _is_left(shown, entries)
        if is_candidate and _is_only_in_views(shown, _key_in(shown.message), entries):
            return True
    return _begins_with(chain(map(parse_message, same), rest), handed.views[0], stored)


def recognise(stored: Sequence[Entry], incoming: Sequence[ParsedMessage], handed: HandedViews) -> Alignment | None:
    """Return what becomes of the history if a list is one of these views, perhaps edited, with messages after it.

    What the view did not show stays. An entry that it showed and that the list does not have is taken out. Other
    messages of the list are new: those after the view come last. Return None if the list is no such view.
    """
    theirs = [bare_key(message, info) for message, info in incoming]
    matches = [_match(stored, incoming, theirs, view) for view in handed.views]
    best = max(matches, key=lambda match: match.only_in_views)  # of equal ones the first
    known = {other for _, other in best.pairs}  # the view was made after the erasure, whatever it quotes
    dropped = [
        index for index, (message, _) in enumerate(incoming) if index not in known and handed.is_dropped(message)
    ]
    if dropped:  # less what the history has too, as it may quote a chapter
        quoted = set(map(_key_of, stored))
        dropped = [index for index in dropped if theirs[index] not in quoted]
    if dropped:  # what that view showed is not known: all of the history stays, and what comes after the view is new
        end = max(*dropped, -1, *(other for _, other in best.pairs)) + 1
        return Alignment([*stored, *incoming[end:]], end < len(incoming))
    if not best.only_in_views:
        best = matches[0]
        if not _begins_with(incoming, handed.views[0], stored):
            return None
    order = list(_Order(stored, incoming, theirs, best).items())
    changed = len(order) != len(stored) or any(a is not b for a, b in zip(order, stored, strict=True))
    return Alignment(order, changed)


def _begins_with(incoming: Iterable[ParsedMessage], view: HandedView, stored: Sequence[Entry]) -> bool:
    """True if a list begins with a whole view, instructions apart, that does not show all of the history.

    It is then the view, unless its messages have the timestamps of the history, which no view has. Such a list was read
    from the history, and what it lacks was taken out.
    """
    entries = {entry.seq: entry for entry in stored if entry.role not in SYSTEM_ROLES}
    spoken = [one for one in view.shown if one.message["role"] not in SYSTEM_ROLES and _is_left(one, entries)]
    shown_seqs = {seq for one in spoken for seq in one.seqs}
    if not spoken or all(seq in shown_seqs for seq in entries if seq <= view.newest_seq):
        return False
    given = (item for item in incoming if item[1].role not in SYSTEM_ROLES)
    for shown in spoken:
        item = next(given, None)
        if item is None or bare_key(*item) != _key_in(shown.message) or not _has_metadata_of(item[0], shown):
            return False
        stamp = timestamp_of(item[0])
        if stamp and any(stamp == timestamp_of(entries[seq].message) for seq in shown.seqs if seq in entries):
            return False
    return True


def _match(
    stored: Sequence[Entry], incoming: Sequence[ParsedMessage], theirs: list[BareKey], view: HandedView
) -> _Match:
    entries = {entry.seq: entry for entry in stored}
    ours = [one for one in view.shown if _is_left(one, entries)]
    count = len(ours)
    ours += [Shown(entry.message, (entry.seq,)) for entry in stored if entry.seq > view.newest_seq]
    keys = [_key_in(one.message) for one in ours]
    pairs = [
        (mine, other)
        for mine, other in matching_pairs(keys, theirs)
        if _has_metadata_of(incoming[other][0], ours[mine])
    ]
    only_in_views = sum(1 for mine, _ in pairs if mine < count and _is_only_in_views(ours[mine], keys[mine], entries))
    return _Match(pairs, only_in_views, ours, keys)


def _is_only_in_views(shown: Shown, key: BareKey, entries: Mapping[int, Entry]) -> bool:
    """True if only a view has this message: a chapter, or an entry in another form than it is stored in."""
    if shown.message["role"] in SYSTEM_ROLES:  # of a system prompt factory
        return False
    if len(shown.seqs) != 1:
        return True
    return _key_of(entries[shown.seqs[0]]) != key


def _is_left(shown: Shown, entries: Mapping[int, Entry]) -> bool:
    """False if the history has none of the entries any more that a message shows."""
    return not shown.seqs or any(seq in entries for seq in shown.seqs)


def _has_metadata_of(message: Message, shown: Shown) -> bool:
    """True if a message has no metadata, or that of a message of a view."""
    return semantic_metadata(message) in ((), semantic_metadata(shown.message))


def _key_of(entry: Entry) -> BareKey:
    return _key_in(entry.message)


def _key_in(message: Message) -> BareKey:
    return bare_key(message, parse_message(message)[1])


def _text_in(message: Message) -> str:
    return text_of(message.get("content")).strip()


class _Order:
    """The history that a returned view makes, in order; `theirs` are the keys of the list."""

    def __init__(
        self, stored: Sequence[Entry], incoming: Sequence[ParsedMessage], theirs: list[BareKey], match: _Match
    ) -> None:
        self._stored = stored
        self._incoming = incoming
        self._theirs = theirs
        places = {entry.seq: place for place, entry in enumerate(stored)}
        self._places = {
            other: [places[seq] for seq in match.ours[mine].seqs if seq in places] for mine, other in match.pairs
        }
        self._kept = {place for found in self._places.values() for place in found}
        matched = {mine for mine, _ in match.pairs}
        self._missing = {
            places[seq]
            for mine, (shown, key) in enumerate(zip(match.ours, match.keys, strict=True))
            if mine not in matched and key[4:] != _NO_CONTENT
            for seq in shown.seqs
            if seq in places
        }
        self._new: dict[int, list[ParsedMessage]] = {}  # by place: they come before its entry

    def items(self) -> Iterator[Entry | ParsedMessage]:
        self._place_new()
        lead = len(self._stored)
        for place, entry in enumerate(self._stored):
            if entry.role not in SYSTEM_ROLES:
                lead = place
                break
        leads = self._has_own_lead()
        for place, entry in enumerate(self._stored):
            yield from self._new.get(place, ())
            is_system = entry.role in SYSTEM_ROLES and not (leads and place < lead)
            if place in self._kept or (is_system if entry.role in SYSTEM_ROLES else place not in self._missing):
                yield entry
        yield from self._new.get(len(self._stored), ())

    def _has_own_lead(self) -> bool:
        """True if the list begins with instructions that are not those of the history."""
        for index, (_, info) in enumerate(self._incoming):
            if info.role not in SYSTEM_ROLES:
                return False
            if index not in self._places:
                return True
        return False

    def _place_new(self) -> None:
        """Find the places of the messages that the view does not have, unless they are entries that it did not show."""
        above = len(self._stored)
        ends: dict[int, int] = {}  # by index in the list: the place of the next entry that the view has
        for other in sorted(self._places, reverse=True):
            above = ends[other] = min(self._places[other], default=above)
        start = low = 0
        follows_entry = False
        for other in sorted(self._places):
            found = self._places[other]
            self._place(range(start, other), low, ends[other], follows_entry=follows_entry)
            start, low, follows_entry = other + 1, max([low - 1, *found]) + 1, bool(found)
        self._place(range(start, len(self._incoming)), low, len(self._stored), follows_entry=False)

    def _place(self, others: Collection[int], low: int, high: int, *, follows_entry: bool) -> None:
        """Find the places of messages between two that the view has, and that are at these places of the history."""
        if not others:
            return
        high = max(low, high)
        free = [place for place in range(low, high) if place not in self._kept]
        left = list(others)
        pairs = matching_pairs([_key_of(self._stored[place]) for place in free], [self._theirs[one] for one in left])
        known = {left[index]: free[mine] for mine, index in pairs}
        self._kept.update(known.values())
        at = max([low - 1, *known.values()]) + 1 if follows_entry else high
        for one in reversed(left):
            if one in known:
                at = known[one]
            else:
                self._new.setdefault(at, []).insert(0, self._incoming[one])
