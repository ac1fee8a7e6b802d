"""A search index and an embedder, offered by a plug-in and named by the config of a session.

    python examples/search/search.py

docs/extending.md says what is demanded of each.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from amplifier_context_core import ContextManager, Entry, Plugins, hookimpl, load_config


class NewestFirst:
    """Finds what holds the query as it is, the newest first."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        hits = [entry for entry in history if query in str(entry.message.get("content"))]
        return hits[::-1][:limit]


class Trigrams:
    """Texts that share groups of three characters are near each other. A model of yours takes its place."""

    name = "trigrams-1"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.vector(f"  {text.lower()}  ") for text in texts]

    def vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for at in range(len(text) - 2):
            vector[hashlib.blake2b(text[at : at + 3].encode()).digest()[0]] += 1.0
        return vector


class Plugin:
    @hookimpl
    def amplifier_context_search_indexes(self) -> Mapping[str, Callable[[], NewestFirst]]:
        return {"newest": NewestFirst}

    @hookimpl
    def amplifier_context_embedders(self) -> Mapping[str, Callable[[], Trigrams]]:
        return {"mine": Trigrams}


async def by_index() -> None:
    plugins = Plugins()
    plugins.register(Plugin())
    context = ContextManager(load_config({"search_index": "newest"}), plugins=plugins)
    for text in ("a port", "no door", "another port"):
        await context.add_message({"role": "user", "content": text})
    assert await context.search("port") == ["m3", "m1"]


async def by_meaning() -> None:
    plugins = Plugins()
    plugins.register(Plugin())
    context = ContextManager(load_config({"embedder": "mine"}), plugins=plugins)
    for text in ("Reconfigured the gateway.", "Lunch.", "Paid the invoice."):
        await context.add_message({"role": "user", "content": text})
    assert (await context.search("configuration"))[0] == "m1"
    words_alone = ContextManager()
    await words_alone.add_message({"role": "user", "content": "Reconfigured the gateway."})
    assert await words_alone.search("configuration") == []


if __name__ == "__main__":
    asyncio.run(by_index())
    asyncio.run(by_meaning())
    print("both find what they should")
