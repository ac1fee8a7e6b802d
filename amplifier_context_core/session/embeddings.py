"""The vectors of one session's messages: made by an embedder, kept in the store if it can keep them, searched here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import StoreError
from ..failures import failure
from ..futures import in_thread
from ..locks import CrossLoopLock
from ..stores.protocol import KeepsVectors, KeptVector, Store
from ..transcript.entry import Entry
from ..transcript.search import searchable_text
from ..transcript.transcript import Snapshot
from ..transcript.vectors import BadVectors, Embedder, Vectors, digest, embedded, packed, unpacked

_BATCH = 64  # texts that an embedder gets at once
_SAME_MODEL = 0.99  # cosine of a text's kept vector and its new one: rounding and batch sizes of one model change less
NEAREST = 50  # messages that take part in the fusion; as many as an index of words gives


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
        self._history = Snapshot([], 0, 0)
        self._vectors = Vectors(embedder.dimensions)

    async def nearest(self, session_id: str, history: Snapshot, query: str) -> list[int]:
        """Return the seqs of the nearest messages, the nearest first; none if embedder or store fails."""
        async with self._lock.hold():
            try:
                await self._follow(session_id, history)
                vector = (await in_thread(embedded, self._embedder, [query]))[0]
                return await in_thread(self._vectors.nearest, vector, NEAREST)
            except StoreError as problem:
                self._report(f"vectors cannot be read, words alone are searched: {problem}")
            except BadVectors:
                self._report(f"embedder {self._model} returned no vectors of its length; words alone are searched")
            except Exception as problem:  # noqa: BLE001 - other people's code: reported
                self._report(f"embedder {self._model} {failure(problem, self._embedder)}; words alone are searched")
            return []

    def forget(self) -> None:
        self._history, self._vectors = Snapshot([], 0, 0), Vectors(self._embedder.dimensions)

    async def _follow(self, session_id: str, history: Snapshot) -> None:
        if not history.begins_with(self._history):
            self.forget()
        self._history, vectors = history, self._vectors  # vectors of its first messages, also if a batch fails
        kept: dict[int, KeptVector] = {}
        if self._store and not len(vectors) and len(history):
            kept = {one.seq: one for one in await self._store.vectors(session_id, self._model)}
            if kept and not await in_thread(self._makes, history, kept):
                self._report(f"kept vectors of {self._model} are not those of this embedder; all are made again")
                kept, self._replaces = {}, True
        for start in range(len(vectors), len(history), _BATCH):
            entries = history[start : start + _BATCH]
            made = await in_thread(self._made, entries, kept)
            new = [one for one in made if one.seq not in kept or kept[one.seq].digest != one.digest]
            await self._save(session_id, new)
            rows = await in_thread(unpacked, [one.vector for one in made], self._embedder.dimensions)
            vectors.add([one.seq for one in made], rows)
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
        old = unpacked([kept[seq].vector for seq in probes], self._embedder.dimensions)
        new = embedded(self._embedder, list(probes.values()))
        return all(float(a @ b) >= _SAME_MODEL or not (a.any() or b.any()) for a, b in zip(old, new, strict=True))

    def _known(self, seq: int, text: str, kept: Mapping[int, KeptVector]) -> KeptVector | None:
        found = kept.get(seq)
        if found and found.digest == digest(text) and len(found.vector) == 4 * self._embedder.dimensions:
            return found
        return None

    def _made(self, entries: list[Entry], kept: dict[int, KeptVector]) -> list[KeptVector]:
        texts = {entry.seq: searchable_text(entry) for entry in entries}
        made = {seq: known for seq, text in texts.items() if (known := self._known(seq, text, kept))}
        missing = [seq for seq in texts if seq not in made]
        if missing:
            vectors = embedded(self._embedder, [texts[seq] for seq in missing])
            for seq, vector in zip(missing, vectors, strict=True):
                made[seq] = KeptVector(seq, digest(texts[seq]), packed(vector))
        return [made[entry.seq] for entry in entries]
