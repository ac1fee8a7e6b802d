"""The vectors of one session's messages: made by an embedder, kept in the store if it can keep them, searched here.

An embedder is a model behind a function. Vectors are compared by their cosine, exactly, block by block: an index that
approximates would save time only above some hundred thousand messages. Stores erase vectors with their messages,
whether or not this package is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.failures import failure
from amplifier_context_core.futures import in_thread
from amplifier_context_core.locks import CrossLoopLock
from amplifier_context_core.messages.hashing import text_digest
from amplifier_context_core.plugins import Plugins
from amplifier_context_core.stores.protocol import KeepsVectors, KeptVector, Store
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.searchable import searchable_text
from amplifier_context_core.transcript.transcript import Snapshot

Matrix = NDArray[np.float32]
K = TypeVar("K", bound=Hashable)

EMBEDDED = 8_000  # characters of a text that are embedded: some 2,000 tokens, more than most models read
_NEAREST = 50  # messages that take part in the fusion; as many as an index of words gives
_BATCH = 64  # texts that an embedder gets at once
_BLOCK = 4_096  # vectors of a block, at most
_RANK = 60  # of reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009
_SAME_MODEL = 0.99  # cosine of a text's kept vector and its new one: rounding and batch sizes of one model change less


@runtime_checkable
class Embedder(Protocol):
    """Makes vectors of texts. It is called in a thread, by one search at a time.

    Attributes:
        name: of the model. Vectors of one name and length are comparable; others are made again.
        dimensions: numbers of a vector.
    """

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Any:
        """Return a vector for each text: a sequence of sequences of floats, or an array of numpy."""
        ...


class BadVectors(ValueError):
    """An embedder returned something else than one vector of its length for each text."""


def vector_search(name: str, plugins: Plugins, store: Store, report: Callable[[str], None]) -> SessionVectors:
    """Return the search with the embedder of this name. Raises `ConfigError`: nothing has that name, or it is none."""
    made = plugins.make_offered("amplifier_context_embedders", name, "embedder", ())
    if not isinstance(made, Embedder) or made.dimensions.__class__ is not int or made.dimensions < 1:
        raise ConfigError("embedder", f"{name!r} made a {type(made).__name__}, not an embedder")
    return SessionVectors(made, store, report)


class _Vectors:
    """Vectors of length one, in blocks, and the seqs of their messages. They are added, never changed."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self._blocks: list[Matrix] = []

    def add(self, seqs: Sequence[int], vectors: Matrix) -> None:
        if self._blocks and len(self._blocks[-1]) + len(vectors) <= _BLOCK:
            vectors = np.concatenate([self._blocks.pop(), vectors])
        self._blocks.append(vectors)
        self.seqs.extend(seqs)

    def nearest(self, vector: Matrix) -> list[int]:
        """Return the seqs of the vectors that point where this one does; of equal ones the later first."""
        found: list[tuple[float, int]] = []
        start = 0
        for block in self._blocks:
            scores = block @ vector
            best = np.argpartition(-scores, min(_NEAREST, len(block)) - 1)[:_NEAREST]
            found.extend((float(scores[at]), self.seqs[start + int(at)]) for at in best if scores[at] > 0)
            start += len(block)
        return [seq for _, seq in sorted(found, reverse=True)[:_NEAREST]]


class SessionVectors:
    """Finds messages whose vectors are near that of a query.

    The first search makes the vectors that the store does not have. Each further search makes those of new messages. A
    message whose text was erased or changed has another digest, so it has no vector any more. The store's vectors are
    used if the embedder still gives the same ones for the first and the last message. `report` gets a line for each
    fault.
    """

    def __init__(self, embedder: Embedder, store: Store, report: Callable[[str], None]) -> None:
        self._embedder = embedder
        self._model = f"{embedder.name}/{embedder.dimensions}"
        self._store = store if isinstance(store, KeepsVectors) else None
        self._report = report
        self._replaces = False  # the store has vectors that another model of this name made
        self._lock = CrossLoopLock()
        self.forget()

    def forget(self) -> None:
        self._history, self._vectors = Snapshot([], 0, 0), _Vectors()

    async def joined(self, having_words: Sequence[int], session_id: str, history: Snapshot, query: str) -> list[int]:
        """Return the seqs of the messages that have the words (the best first), or are near the query, or both."""
        return fused((having_words, await self._nearest(session_id, history, query)))

    async def _nearest(self, session_id: str, history: Snapshot, query: str) -> list[int]:
        """Return the seqs of the nearest messages, the nearest first; none if embedder or store fails."""
        async with self._lock.hold():
            try:
                await self._follow(session_id, history)
                vector = (await in_thread(self._embedded, [query]))[0]
                return await in_thread(self._vectors.nearest, vector)
            except StoreError as problem:
                self._report(f"vectors cannot be read, words alone are searched: {problem}")
            except BadVectors:
                self._report(f"embedder {self._model} returned no vectors of its length; words alone are searched")
            except Exception as problem:  # noqa: BLE001 - other people's code: reported
                self._report(f"embedder {self._model} {failure(problem, self._embedder)}; words alone are searched")
            return []

    async def _follow(self, session_id: str, history: Snapshot) -> None:
        """Have the vectors of a history: of its first messages, also if a batch fails."""
        if not history.begins_with(self._history):
            self.forget()
        self._history, vectors = history, self._vectors  # others if messages are erased meanwhile
        kept: dict[int, KeptVector] = {}
        if self._store and not vectors.seqs and len(history):
            kept = {one.seq: one for one in await self._store.vectors(session_id, self._model)}
            if kept and not await in_thread(self._makes, history, kept):
                self._report(f"kept vectors of {self._model} are not those of this embedder; all are made again")
                kept, self._replaces = {}, True
        for start in range(len(vectors.seqs), len(history), _BATCH):
            made = await in_thread(self._made, history[start : start + _BATCH], kept)
            await self._save(session_id, [one for one in made if kept.get(one.seq) is not one])
            vectors.add([one.seq for one in made], await in_thread(self._unpacked, made))
        self._replaces = False

    async def _save(self, session_id: str, vectors: list[KeptVector]) -> None:
        if self._store is None or not vectors:
            return
        try:
            await self._store.save_vectors(session_id, self._model, vectors)
        except StoreError as problem:
            self._report(f"vectors are not kept, the next process makes them again: {problem}")
            if self._replaces:  # vectors after them would hide from `_makes` that these are of the other model
                self._store = None

    def _makes(self, history: Snapshot, kept: Mapping[int, KeptVector]) -> bool:
        """True if the embedder still gives the kept vectors of the first and the last message that have one.

        Both are compared: another model may have replaced the vectors of the first messages only.
        """
        known = (
            next((entry for entry in entries if self._known(entry.seq, searchable_text(entry), kept)), None)
            for entries in (history, reversed(history))
        )
        probes = {entry.seq: searchable_text(entry) for entry in known if entry}
        if not probes:
            return True
        old = self._unpacked([kept[seq] for seq in probes])
        new = self._embedded(list(probes.values()))
        return all(float(a @ b) >= _SAME_MODEL or not (a.any() or b.any()) for a, b in zip(old, new, strict=True))

    def _known(self, seq: int, text: str, kept: Mapping[int, KeptVector]) -> KeptVector | None:
        found = kept.get(seq)
        if found and found.digest == text_digest(text) and len(found.vector) == 4 * self._embedder.dimensions:
            return found
        return None

    def _made(self, entries: list[Entry], kept: Mapping[int, KeptVector]) -> list[KeptVector]:
        texts = {entry.seq: searchable_text(entry) for entry in entries}
        made = {seq: known for seq, text in texts.items() if (known := self._known(seq, text, kept))}
        missing = [seq for seq in texts if seq not in made]
        if missing:
            vectors = self._embedded([texts[seq] for seq in missing])
            for seq, vector in zip(missing, vectors, strict=True):
                made[seq] = KeptVector(seq, text_digest(texts[seq]), vector.astype("<f4").tobytes())
        return [made[seq] for seq in texts]

    def _embedded(self, texts: Sequence[str]) -> Matrix:
        """Return the vectors of texts, of length one; all zeros stay zeros.

        Raises:
            BadVectors: they are not vectors of finite numbers, one for each text.
            Exception: whatever the embedder raises.
        """
        made = self._embedder.embed([text[:EMBEDDED] for text in texts])
        try:
            vectors = np.array(made, dtype=np.float32)
        except (TypeError, ValueError):
            raise BadVectors from None
        if vectors.shape != (len(texts), self._embedder.dimensions) or not np.isfinite(vectors).all():
            raise BadVectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)

    def _unpacked(self, kept: Sequence[KeptVector]) -> Matrix:
        rows = np.frombuffer(b"".join(one.vector for one in kept), dtype="<f4").astype(np.float32)
        return rows.reshape(len(kept), self._embedder.dimensions)


def fused(rankings: Iterable[Sequence[K]]) -> list[K]:
    """Return what several rankings have, by reciprocal rank; of equal ones that of the first ranking comes first."""
    scores: dict[K, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK + rank)
    return sorted(scores, key=lambda key: -scores[key])
