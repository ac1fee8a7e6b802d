"""Records of redacted messages, so that a host that still has the text cannot add it again.

A host keeps its own transcripts and passes them as lists. In such a list a redacted message is recognised by its role,
the ids of its calls and results, and its timestamp. A host may remove timestamps. For that case a *trace* is kept: the
scrypt hash of the former content, with a salt of the session. The text cannot be read from a trace, but a reader of the
store can hash guesses. That is slow by design, and `forget --no-trace` keeps no trace.

Hashing a text takes about a third of a second, and is done in a thread.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ..futures import in_thread
from ..messages.parsing import ParsedMessage, metadata_of, parse_message
from ..messages.timestamps import timestamp_of
from ..messages.tokens import TokenCounter
from ..transcript.alignment import normalized_content
from ..transcript.entry import Entry
from ..transcript.recalled import copies_of
from ..transcript.redaction import is_redacted, redacted, redacted_message, without_prefixes

log = logging.getLogger(__name__)

EchoKey = tuple[str, tuple[str, ...], tuple[str, ...]]  # role, ids of calls, ids of answers
Cost = tuple[int, int, int]  # of scrypt: log2 N, r, p

# One of the choices of equal strength in OWASP's Password Storage Cheat Sheet (the first is N=2^17, r=8, p=1); this one
# takes 32 MiB. See docs/stores.md.
COST: Cost = (15, 8, 3)
_MAX_COST: Cost = (17, 8, 10)  # a trace of a higher cost was not made by this code, and is not compared
_SALT = 16  # bytes
_HASH = 32  # bytes
_TRACE = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([\w+/]{22})\$([\w+/]{43})")
_TO_THE_MILLISECOND = re.compile(r"\.\d*[1-9]")  # a fraction of a second that is not zero
_LONG_ID = 16  # characters; ids of providers are longer, and short ones such as "call_0" are reused in every turn
_MAX_COMPARED = 128  # texts compared with traces in one call; takes a thread some 40 seconds


@dataclass(frozen=True, slots=True)
class Redaction:
    session_id: str  # the session of origin; with `seq` the identity of the entry, in forks too
    seq: int
    role: str
    call_ids: tuple[str, ...] = ()
    answered_ids: tuple[str, ...] = ()
    timestamp: str = ""  # of its message, ISO 8601; empty if it had none
    trace: str = ""  # hash of its former content, see `trace_of`; empty if none is kept
    shares_time: bool = False  # another entry of the same kind has the same timestamp

    @property
    def kind(self) -> EchoKey:
        """An echo of it always shares these."""
        return self.role, self.call_ids, self.answered_ids


def redactions_of(entries: Iterable[Entry]) -> list[Redaction]:
    """Read all entries of a session, archived ones included. Of entries with the same seq the last one counts."""
    known = {entry.seq: entry for entry in entries}.values()
    if all(not entry.is_redacted for entry in known):
        return []
    times = Counter(_identity(entry) for entry in known)
    found: list[Redaction] = []
    for entry in known:
        if entry.redaction_trace is not None:
            kind, timestamp = _identity(entry)
            shares_time = times[kind, timestamp] > 1
            found.append(Redaction(entry.session_id, entry.seq, *kind, timestamp, entry.redaction_trace, shares_time))
    return found


def to_redact(
    entries: Sequence[Entry], which: Callable[[Entry], bool], also: Collection[int], lines: Collection[str] = ()
) -> dict[int, Entry]:
    """Return the entries to redact, by seq: the selected ones, and recalled texts that quote them or certain items.

    Args:
        entries: the history and its archive.
        also: seqs of entries that are redacted whatever `which` selects.
        lines: of these items, see `copies_of`.
    """
    known = {entry.seq: entry for entry in entries if which(entry) or entry.seq in also}
    copies = copies_of(sorted(entries, key=lambda entry: entry.seq), known, lines)
    return known | {entry.seq: entry for entry in entries if entry.seq in copies}


def without_former_hashes(
    left: Sequence[Entry], everything: Sequence[Entry], known: Collection[int]
) -> tuple[list[Entry], list[Entry]]:
    """Return the redacted entries, and the others that change: all without hashes of what was erased.

    `everything` is the history and its archive, as they were; `known` are the seqs of the redacted entries.
    """
    first = min(known, default=0)
    rest = [entry for entry in everything if entry.seq not in known]
    later = without_prefixes(rest, first)
    return without_prefixes(left, first), [new for new, old in zip(later, rest, strict=True) if new is not old]


class Redactions:
    """All redactions of one session; `read` returns archive and history, None if the caller notes all of them."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[Entry]]] | None = None) -> None:
        self._read = read
        self.are_known = read is None  # all redactions of the session were noted
        # Seqs of redacted entries whose former texts the store has not erased yet.
        self.unfinished: frozenset[int] = frozenset()
        self._by_identity: dict[tuple[str, int], Redaction] = {}
        self._hashes: dict[tuple[bytes, str], str] = {}  # trace, by digest of the text and salt with cost

    def __bool__(self) -> bool:
        return bool(self._by_identity)

    async def known(self) -> tuple[Redaction, ...]:
        if self._read and not self.are_known:
            self.note(await in_thread(redactions_of, await self._read()))
            self.are_known = True
        return self.all()

    def all(self) -> tuple[Redaction, ...]:
        return tuple(self._by_identity.values())

    def note(self, redactions: Iterable[Redaction]) -> None:
        """Of the same entry the last record counts."""
        self._by_identity.update(((one.session_id, one.seq), one) for one in redactions)

    async def redact(self, entries: Collection[Entry], counter: TokenCounter, *, trace: bool) -> list[Entry]:
        """Return the redacted entries. The caller notes them once the store holds them.

        Args:
            entries: one that was redacted before stays as it is.
            trace: keep traces of entries that ids do not identify. If False, existing traces of these entries go.
        """
        traced = [
            entry
            for entry in entries
            if trace and not entry.is_redacted and not is_named((entry.role, entry.call_ids, entry.answered_ids))
        ]
        known = next((found for one in self.all() if (found := settings_of(one.trace))), None)
        traces = await in_thread(_traces, traced, known[0] if known else secrets.token_bytes(_SALT))
        left: list[Entry] = []
        for entry in entries:
            if not entry.is_redacted:
                left.append(redacted(entry, counter, traces.get(entry.seq, "")))
            else:
                left.append(entry if trace else entry._replace(redaction_trace=""))
        return left

    async def without_echoes(
        self, items: Sequence[ParsedMessage], entries: Sequence[Entry], *, by_text: bool = True
    ) -> list[ParsedMessage]:
        """Return the messages, with the redacted form in place of each echo of a redacted entry.

        Args:
            items: messages that match no entry.
            by_text: compare the texts also of messages without the timestamp of a redacted entry.
        """
        echoes = await self.echoes(items, by_text=by_text)
        if not echoes:
            return list(items)
        redacted = {(entry.session_id, entry.seq): entry for entry in entries if entry.is_redacted}
        left = list(items)
        for index, echo in echoes.items():
            message, info = items[index]
            entry = redacted.get((echo.session_id, echo.seq))
            if entry is not None:
                message = entry.message
            else:
                message = redacted_message(message, human=info.human)
                if echo.timestamp:
                    message["metadata"] = {**metadata_of(message), "timestamp": echo.timestamp}
            left[index] = parse_message(message)
        return left

    async def echoes(self, items: Sequence[ParsedMessage], *, by_text: bool) -> dict[int, Redaction]:
        """Return the redaction that a message is an echo of, by index of the message; see `without_echoes`."""
        remembered: dict[EchoKey, list[Redaction]] = {}
        for one in await self.known():
            remembered.setdefault(one.kind, []).append(one)
        alike: dict[tuple[EchoKey, str], list[int]] = {}
        for index, (message, info) in enumerate(items):
            kind = (info.role, info.call_ids, info.answered_ids)
            if kind in remembered and not is_redacted(message):
                alike.setdefault((kind, timestamp_of(message) or ""), []).append(index)
        found: dict[int, Redaction] = {}
        doubtful: list[tuple[int, list[Redaction]]] = []
        for (kind, timestamp), indices in alike.items():
            by_ids = is_named(kind)
            named = [one for one in remembered[kind] if timestamp and one.timestamp == timestamp]
            named = named or (remembered[kind] if by_ids else [])
            traced = any(one.trace for one in named)
            exact = by_ids or bool(_TO_THE_MILLISECOND.search(timestamp))
            alone = len(indices) <= len(named) and not any(one.shares_time for one in named)
            if (exact and alone) or (named and not traced and (exact or by_text)):
                found |= dict(zip(indices, named, strict=False))
            elif by_text or named:
                doubtful += [(index, remembered[kind]) for index in indices]
        return found | await self._by_trace(items, [one for one in doubtful if one[0] not in found])

    async def _by_trace(
        self, items: Sequence[ParsedMessage], doubtful: Sequence[tuple[int, list[Redaction]]]
    ) -> dict[int, Redaction]:
        traced = [(index, some) for index, some in doubtful if any(one.trace for one in some)]
        if len(traced) > _MAX_COMPARED:
            left = len(traced) - _MAX_COMPARED
            log.warning("%d new messages were not compared with what was erased: too many at once", left)
        found: dict[int, Redaction] = {}
        for index, candidates in traced[:_MAX_COMPARED]:
            text = normalized_content(items[index][0], items[index][1].call_ids)
            for one in candidates:
                if text and await self._is_trace_of(one.trace, text):
                    found[index] = one
                    break
        return found

    async def _is_trace_of(self, trace: str, text: bytes) -> bool:
        """A text is hashed once, in a thread."""
        settings = settings_of(trace)
        if settings is None:
            return False
        key = (hashlib.blake2b(text, digest_size=16).digest(), trace.rpartition("$")[0])
        if key not in self._hashes:
            self._hashes[key] = await in_thread(trace_of, text, *settings)
        return hmac.compare_digest(self._hashes[key], trace)


def trace_of(text: bytes, salt: bytes, cost: Cost | None = None) -> str:
    """Return the trace of a text, with the settings that are needed to compare it with another text.

    Empty for an empty text, and if Python was built without scrypt. Takes about a third of a second.
    """
    scrypt = getattr(hashlib, "scrypt", None)
    if not text or scrypt is None:
        return ""
    power, size, parallelism = cost or COST
    room = 128 * size * ((1 << power) + parallelism + 2)  # bytes, by the formula of OpenSSL
    digest = scrypt(text, salt=salt, n=1 << power, r=size, p=parallelism, maxmem=room, dklen=_HASH)
    return f"$scrypt$ln={power},r={size},p={parallelism}${_base64(salt)}${_base64(digest)}"


def _traces(entries: Iterable[Entry], salt: bytes) -> dict[int, str]:
    texts = {entry.seq: normalized_content(entry.message, entry.call_ids) for entry in entries}
    known = {text: trace_of(text, salt) for text in set(texts.values())}
    return {seq: known[text] for seq, text in texts.items()}


def settings_of(trace: str) -> tuple[bytes, Cost] | None:
    """Return salt and cost of a trace; None if the text is no trace, or its cost is above the limit."""
    found = _TRACE.fullmatch(trace)
    if found is None:
        return None
    power, size, parallelism = int(found[1]), int(found[2]), int(found[3])
    if not (0 < power <= _MAX_COST[0] and 0 < size <= _MAX_COST[1] and 0 < parallelism <= _MAX_COST[2]):
        return None
    return b64decode(found[4] + "=="), (power, size, parallelism)


def _identity(entry: Entry) -> tuple[EchoKey, str]:
    return (entry.role, entry.call_ids, entry.answered_ids), timestamp_of(entry.message) or ""


def is_named(kind: EchoKey) -> bool:
    """True if messages of a kind have ids, and no other message can have the same by chance."""
    ids = (*kind[1], *kind[2])
    return bool(ids) and min(map(len, ids)) >= _LONG_ID


def _base64(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")
