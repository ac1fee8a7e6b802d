"""Embedders for tests, and a manager that searches with one."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amplifier_context_core import ContextManager, Plugins, hookimpl, load_config
from amplifier_context_core.stores import Store

CORPUS = [
    "The boat left the harbour with a new sail.",
    "A ship needs a sail and a harbour.",
    "Every boat is a small ship at sea.",
    "The doctor wrote a prescription for the patient.",
    "A physician sees each patient in the ward.",
    "Our doctor is the only physician in town.",
    "Bread needs flour, water and an oven.",
    "The baker opened the oven and took the bread out.",
]


class Deterministic:
    """One axis for each word, by its hash; texts that share words are near each other."""

    name = "hashed words"

    def __init__(self, dimensions: int = 64) -> None:
        self.dimensions = dimensions
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked.append(list(texts))
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.lower()):
            vector[hashlib.blake2b(word.encode()).digest()[0] % self.dimensions] += 1.0
        return vector


class Fitted:
    """Words that occur with the same words are near each other: hashed n-grams, and SVD of a corpus."""

    name = "fitted"
    dimensions = 3

    def __init__(self, corpus: Sequence[str]) -> None:
        _, _, axes = np.linalg.svd(np.array([self._counts(text) for text in corpus]), full_matrices=False)
        self._axes = axes[: self.dimensions]

    def embed(self, texts: Sequence[str]) -> Any:
        return np.array([self._counts(text) for text in texts]) @ self._axes.T

    def _counts(self, text: str) -> Any:
        counts = np.zeros(512)
        for word, count in Counter(re.findall(r"\w{4,}", text.lower())).items():
            counts[int.from_bytes(hashlib.blake2b(word.encode()).digest()[:2]) % 512] += count
        return counts


def searching(embedder: object, store: Store | None = None, session_id: str = "s") -> ContextManager:
    """Return a manager whose searches use an embedder."""

    class Plugin:
        @hookimpl
        def amplifier_context_embedders(self) -> dict[str, Callable[[], object]]:
            return {"mine": lambda: embedder}

    plugins = Plugins()
    plugins.register(Plugin())
    config = load_config({"embedder": "mine", "token_counter": "heuristic"})
    return ContextManager(config, plugins=plugins, store=store, session_id=session_id)


async def add(manager: ContextManager, *texts: str) -> None:
    for text in texts:
        await manager.add_message({"role": "user", "content": text})
