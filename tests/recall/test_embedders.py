"""Searches that compare vectors: what they find beside the words, and what happens when a model fails."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.errors import ConfigError
from amplifier_context_recall.vectors import EMBEDDED
from tests.embedders import CORPUS, Deterministic, Fitted, add, searching


async def test_a_message_is_found_by_another_word_for_the_same_thing() -> None:
    manager = searching(Fitted(CORPUS))
    await add(manager, *CORPUS)
    assert set((await manager.search("doctor"))[:3]) == {"m4", "m5", "m6"}, "m5 says physician"


async def test_what_both_rankings_have_comes_first_and_what_left_the_history_is_not_found() -> None:
    manager = searching(Deterministic())
    await add(manager, "grey heron", "a goose", "heron")
    assert (await manager.search("grey heron"))[:2] == ["m1", "m3"]
    assert await manager.search("grey heron", 1) == ["m1"]
    assert await manager.search("grey heron", 0) == await manager.search("?!") == []
    assert "m2" in await manager.search("goose")
    await manager.set_messages((await manager.get_messages())[:1])
    await add(manager, "swan")
    assert "m2" not in await manager.search("goose")


async def test_each_text_is_embedded_once_in_batches() -> None:
    embedder = Deterministic()
    manager = searching(embedder)
    await add(manager, *(f"message {number}" for number in range(150)))
    await manager.search("message 7")
    assert [len(batch) for batch in embedder.asked] == [64, 64, 22, 1]
    await add(manager, "one more", "x" * 3 * EMBEDDED)
    embedder.asked.clear()
    await manager.search("more")
    assert [len(batch) for batch in embedder.asked] == [2, 1]
    assert max(len(text) for batch in embedder.asked for text in batch) == EMBEDDED


class Failing(Deterministic):
    def __init__(self, answer: Callable[[Sequence[str]], object]) -> None:
        super().__init__()
        self._answer = answer

    def embed(self, texts: Sequence[str]) -> Any:
        return self._answer(texts)


def _raises(texts: Sequence[str]) -> object:
    raise RuntimeError(f"no such model for {texts}")


@pytest.mark.parametrize("row", [RuntimeError, None, [0.0] * 63, [float("nan")] * 64, ["x"] * 64])
async def test_while_an_embedder_fails_words_are_searched_alone(row: Any, caplog: pytest.LogCaptureFixture) -> None:
    good, fails = Deterministic(), [True]
    answer = _raises if row is RuntimeError else lambda texts: [row for _ in texts]
    manager = searching(Failing(lambda texts: answer(texts) if fails else good.embed(texts)))
    await add(manager, "a secret heron", "goose")
    for _ in range(3):
        assert await manager.search("heron") == ["m1"]
    warnings = (await manager.explain())["warnings"]
    assert len(warnings) == 1
    assert "words alone are searched" in warnings[0]
    assert "secret" not in caplog.text
    fails.clear()
    assert set(await manager.search("goose heron")) == {"m1", "m2"}, "it is asked again"


async def test_an_edit_after_an_embedder_failed_midway_leaves_no_vector_of_what_left_the_history() -> None:
    good, fails = Deterministic(), [True]
    manager = searching(Failing(lambda texts: _raises(texts) if fails and "last" in texts else good.embed(texts)))
    await add(manager, *(f"filler {number}" for number in range(70)), "last")
    await manager.search("filler")  # the first batch has its vectors, the second has none
    edited = await manager.get_messages()
    edited[3]["content"] = "heron"
    await manager.set_messages(edited)
    fails.clear()
    assert "m4" not in await manager.search("filler heron 3", 200)


async def test_what_is_erased_while_texts_are_embedded_leaves_one_vector_for_each_message() -> None:
    loop = asyncio.get_running_loop()

    class Erasing(Deterministic):
        def embed(self, texts: Sequence[str]) -> Any:
            vectors = super().embed(texts)
            if len(self.asked) == 2:
                asyncio.run_coroutine_threadsafe(manager.forget(["m100"]), loop).result()
            return vectors

    embedder = Erasing()
    manager = searching(embedder)
    await add(manager, *(f"text {number}" for number in range(1, 151)))
    await manager.search("text")
    embedder.asked.clear()
    assert "m100" not in await manager.search("text 100", 150)
    texts = [text for batch in embedder.asked[:-1] for text in batch]
    assert texts == [f"text {number}" if number != 100 else "(erased)" for number in range(1, 151)]


@pytest.mark.parametrize("odd", [7, type("Odd", (), {"name": "x", "dimensions": 0, "embed": print})()])
async def test_what_is_no_embedder_and_an_unknown_one_are_refused(odd: object) -> None:
    with pytest.raises(ConfigError, match="embedder"):
        searching(odd)
    with pytest.raises(ConfigError, match=r"^embedder: 'none of that name' is not known; no plug-in offers one$"):
        ContextManager(load_config({"embedder": "none of that name"}), plugins=Plugins())
