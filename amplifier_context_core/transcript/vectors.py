"""Texts as vectors of an embedder: which are nearest to a query, and how two rankings become one. Pure, on numpy.

An embedder is a model behind a function. Vectors are compared by their cosine, exactly, block by block: an
index that approximates would save time only above some hundred thousand messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

K = TypeVar("K", bound=Hashable)

EMBEDDED = 8_000  # characters of a text that are embedded: some 2,000 tokens, more than most models read
_BLOCK = 4_096  # vectors of a block
_RANK = 60  # of reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009


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


def digest(text: str) -> bytes:
    """8 bytes identify the text of a vector."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def embedded(embedder: Embedder, texts: Sequence[str]) -> Matrix:
    """Return the vectors of texts, of length one; all zeros stay zeros.

    Raises:
        BadVectors: they are not vectors of finite numbers, one for each text.
        Exception: whatever the embedder raises.
    """
    import numpy as np

    made = embedder.embed([text[:EMBEDDED] for text in texts])
    try:
        vectors = np.array(made, dtype=np.float32)
    except (TypeError, ValueError):
        raise BadVectors from None
    if vectors.shape != (len(texts), embedder.dimensions) or not np.isfinite(vectors).all():
        raise BadVectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


class Vectors:
    """Vectors by key, in blocks. Keys and texts are added, never changed: of an edited history there is another one."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._keys: list[int] = []
        self._blocks: list[Matrix] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Sequence[int], vectors: Matrix) -> None:
        """The vectors have length one."""
        import numpy as np

        at = 0
        while at < len(keys):
            inside = len(self._keys) % _BLOCK
            if inside == 0:
                self._blocks.append(np.zeros((_BLOCK, self._dimensions), dtype=np.float32))
            fitting = min(_BLOCK - inside, len(keys) - at)
            self._blocks[-1][inside : inside + fitting] = vectors[at : at + fitting]
            self._keys.extend(keys[at : at + fitting])
            at += fitting

    def nearest(self, vector: Matrix, limit: int) -> list[int]:
        """Return the keys of the vectors that point where this one does, the nearest first; of equal ones the later."""
        import numpy as np

        found: list[tuple[float, int]] = []
        for number, block in enumerate(self._blocks):
            count = min(_BLOCK, len(self._keys) - number * _BLOCK)
            scores = block[:count] @ vector
            best = np.argpartition(-scores, min(limit, count) - 1)[:limit]
            found.extend((float(scores[place]), number * _BLOCK + int(place)) for place in best if scores[place] > 0)
        return [self._keys[place] for _, place in sorted(found, reverse=True)[:limit]]


def fused(rankings: Iterable[Sequence[K]], limit: int) -> list[K]:
    """Return what several rankings have, by reciprocal rank; of equal ones that of the first ranking comes first."""
    scores: dict[K, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK + rank)
    return sorted(scores, key=lambda key: -scores[key])[:limit]


def packed(vector: Matrix) -> bytes:
    """Little-endian float32, as stores keep it."""
    return vector.astype("<f4").tobytes()


def unpacked(blobs: Sequence[bytes], dimensions: int) -> Matrix:
    """Return the vectors of blobs, which have that length, as rows."""
    import numpy as np

    return np.frombuffer(b"".join(blobs), dtype="<f4").astype(np.float32).reshape(len(blobs), dimensions)
