"""Recognition of a view that a host hands back in place of the history.

Frameworks put what was sent in the place of their own history, and hand that in with new messages after it. Such a list
has chapters and shortened outputs where the history has originals. It is recognised by them: by messages that only a
view that was handed out has, compared as `alignment` compares. A list that begins with all of the last view is one too.
All that the view did not show stays in the history. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from ..messages.parsing import SYSTEM_ROLES, Message, ParsedMessage, parse_message, text_of
from ..messages.timestamps import timestamp_of
from .alignment import BareKey, Order, arranged, bare_key, matching_pairs, semantic_metadata
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
    # By `form_hash`, the seqs of what the messages of such a view showed that are alike, in order, one of them erased
    # since. Forms that are as stored are left out: an erasure recognises these by itself.
    erased_forms: Mapping[int, Sequence[tuple[int, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Match:
    """What a list has of a view."""

    ours: list[Shown]  # the messages of the view, less those of which the history has nothing any more
    keys: list[BareKey]  # of these, and then of the entries that came after the view
    seqs: list[tuple[int, ...]]  # of the same
    pairs: list[tuple[int, int]]  # of indices in them and in the list, rising on both sides
    only_in_views: int  # how many of these are messages that only a view has


def form_hash(message: Message) -> int:
    """Python's hash of what is compared of a message: it has a secret key, and no process has the same."""
    return hash(_key_in(message))


def without_erased_forms(
    stored: Sequence[Entry], incoming: Sequence[ParsedMessage], handed: HandedViews
) -> list[ParsedMessage]:
    """Return a list with the entries as they are stored in place of the `erased_forms` of a dropped view.

    A view may show a message under another call id, in fewer words or merged with its neighbour. No timestamp, id or
    trace of an erasure recognises such a form.
    """
    entries = {entry.seq: entry for entry in stored} if handed.erased_forms else {}
    waiting = {form: iter(shown) for form, shown in handed.erased_forms.items()}
    left: list[ParsedMessage] = []
    for message, info in incoming:
        alike = waiting.get(hash(bare_key(message, info))) if waiting else None
        seqs = next(alike, None) if alike else None
        if seqs is None:
            left.append((message, info))
        else:  # an entry that is several messages of a view comes once
            left.extend(parse_message(entries.pop(seq).message) for seq in seqs if seq in entries)
    return left


def holds_chapters(incoming: Sequence[ParsedMessage], handed: HandedViews) -> bool:
    """True if one of the messages is a chapter of one of these views, or of one that was dropped."""
    if any(handed.is_dropped(message) for message, _ in incoming):
        return True
    texts = {(info.role, _text_in(message)) for message, info in incoming}
    shown = (one for view in handed.views for one in view.shown if not one.seqs)
    return any((one.message["role"], _text_in(one.message)) in texts for one in shown)


def recognise(stored: Sequence[Entry], incoming: Sequence[ParsedMessage], handed: HandedViews) -> Order | None:
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
        return [*stored, *incoming[end:]]
    if best.only_in_views:
        return _arranged(stored, incoming, theirs, best)
    if _begins_with(incoming, theirs, matches[0], handed.views[0].newest_seq, stored):
        return _arranged(stored, incoming, theirs, matches[0])
    return None


def _begins_with(
    incoming: Sequence[ParsedMessage], theirs: list[BareKey], match: _Match, newest_seq: int, stored: Sequence[Entry]
) -> bool:
    """True if a list begins with a whole view, instructions apart, that does not show all of the history.

    It is then the view, unless its messages have the timestamps of the history, which no view has. Such a list was read
    from the history, and what it lacks was taken out.
    """
    entries = {entry.seq: entry for entry in stored if entry.role not in SYSTEM_ROLES}
    spoken = [
        (shown, key)
        for shown, key in zip(match.ours, match.keys, strict=False)
        if shown.message["role"] not in SYSTEM_ROLES
    ]
    shown_seqs = {seq for shown, _ in spoken for seq in shown.seqs}
    given = [index for index, (_, info) in enumerate(incoming) if info.role not in SYSTEM_ROLES][: len(spoken)]
    if not spoken or len(given) < len(spoken) or all(seq in shown_seqs for seq in entries if seq <= newest_seq):
        return False
    for index, (shown, key) in zip(given, spoken, strict=True):
        message, stamp = incoming[index][0], timestamp_of(incoming[index][0])
        if theirs[index] != key or not _has_metadata_of(message, shown.message):
            return False
        if stamp and any(stamp == timestamp_of(entries[seq].message) for seq in shown.seqs if seq in entries):
            return False
    return True


def _match(
    stored: Sequence[Entry], incoming: Sequence[ParsedMessage], theirs: list[BareKey], view: HandedView
) -> _Match:
    entries = {entry.seq: entry for entry in stored}
    ours = [one for one in view.shown if not one.seqs or any(seq in entries for seq in one.seqs)]
    later = [entry for entry in stored if entry.seq > view.newest_seq]
    messages = [*(one.message for one in ours), *(entry.message for entry in later)]
    keys = list(map(_key_in, messages))
    pairs = [
        (mine, other)
        for mine, other in matching_pairs(keys, theirs)
        if _has_metadata_of(incoming[other][0], messages[mine])
    ]
    only_in_views = [
        (timestamp_of(incoming[other][0]), keys[mine])
        for mine, other in pairs
        if mine < len(ours) and _is_only_in_views(ours[mine], keys[mine], entries)
    ]
    of_history = _stamped(stored, {stamp for stamp, _ in only_in_views if stamp})
    seqs = [*(one.seqs for one in ours), *((entry.seq,) for entry in later)]
    return _Match(ours, keys, seqs, pairs, sum(one not in of_history for one in only_in_views))


def _is_only_in_views(shown: Shown, key: BareKey, entries: Mapping[int, Entry]) -> bool:
    """True if only a view has this message: a chapter, or an entry in another form than it is stored in."""
    if shown.message["role"] in SYSTEM_ROLES:  # of a system prompt factory
        return False
    return len(shown.seqs) != 1 or _key_of(entries[shown.seqs[0]]) != key


def _stamped(stored: Sequence[Entry], stamps: Collection[str]) -> set[tuple[str | None, BareKey]]:
    """Return timestamp and content of each entry with one of these timestamps.

    No view has timestamps: a message of a list with both was read from the history.
    """
    found = ((timestamp_of(entry.message), entry) for entry in stored) if stamps else ()
    return {(stamp, _key_of(entry)) for stamp, entry in found if stamp in stamps}


def _has_metadata_of(message: Message, shown: Message) -> bool:
    """True if a message has no metadata, or that of a message of a view."""
    return semantic_metadata(message) in ((), semantic_metadata(shown))


def _key_of(entry: Entry) -> BareKey:
    return bare_key(entry.message, entry)


def _key_in(message: Message) -> BareKey:
    return bare_key(message, parse_message(message)[1])


def _text_in(message: Message) -> str:
    return text_of(message.get("content")).strip()


def _arranged(
    stored: Sequence[Entry], incoming: Sequence[ParsedMessage], theirs: list[BareKey], match: _Match
) -> Order:
    """Return the history that a returned view makes; `theirs` are the keys of the list."""
    place_of = {entry.seq: place for place, entry in enumerate(stored)}
    places = [[place_of[seq] for seq in seqs if seq in place_of] for seqs in match.seqs]
    known = {other: places[mine] for mine, other in match.pairs}
    kept = {place for found in known.values() for place in found}
    missed = set(range(len(places))).difference(mine for mine, _ in match.pairs)
    missing = {place for mine in missed if match.keys[mine][4:] != _NO_CONTENT for place in places[mine]}
    gone = {place for place in missing if stored[place].role not in SYSTEM_ROLES}
    new: dict[int, list[ParsedMessage]] = {}
    others = sorted(known)
    # By index in `others`, the place behind all entries that the list has before it; and at the end of the list.
    lows = list(accumulate((max(known[other], default=-1) + 1 for other in others), max, initial=0))
    high = len(stored)
    for index in reversed(range(len(lows))):  # of the messages that come before this one of the list
        before = others[index - 1] if index else -1
        other = others[index] if index < len(others) else len(incoming)
        high = max(lows[index], min(known.get(other, ()), default=high))
        left = range(before + 1, other)
        free = [place for place in range(lows[index], high) if place not in kept] if left else []
        pairs = matching_pairs([_key_of(stored[place]) for place in free], [theirs[one] for one in left])
        entries = {left[theirs_]: free[mine] for mine, theirs_ in pairs}  # that the view did not show
        kept.update(entries.values())
        follows_entry = other < len(incoming) and bool(known.get(before))
        at = max([lows[index] - 1, *entries.values()]) + 1 if follows_entry else high
        for one in reversed(left):
            if one in entries:
                at = entries[one]
            else:
                new.setdefault(at, []).insert(0, incoming[one])
    return arranged(stored, incoming, known, kept, gone, new)
