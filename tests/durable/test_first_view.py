"""The first view of a process: sent without a vocabulary where upper bounds of counts suffice, and exact afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import exact_token_counter
from amplifier_context_core.messages.token_bounds import BoundingTokenCounter
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.stores import UNCOUNTED
from tests.durable.vocabulary import EXACT, ROOT, Vocabulary, exact, filled
from tests.places import Place

from .sessions import again, call, manager_on, user

# -- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.stores("memory", "sqlite")
async def test_first_view_of_a_resumed_session_needs_no_vocabulary(place: Place, vocabulary: Vocabulary) -> None:
    first = await filled(place, 40)
    assert first.compactor.compactions
    expected = await first.get_messages_for_request()
    resumed = await again(first, place, **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    assert await resumed.get_messages_for_request() == expected
    assert vocabulary.loads == before
    assert resumed.snapshot().gap
    await resumed.store.close()


@pytest.mark.stores("memory", "sqlite")
async def test_a_question_is_stored_and_sent_before_the_vocabulary_is_loaded(
    place: Place, vocabulary: Vocabulary
) -> None:
    resumed = await again(await filled(place, 40), place, **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    await resumed.add_message(user("and now?"))
    view = await resumed.get_messages_for_request()
    assert view[-1]["content"] == "and now?"
    assert vocabulary.loads == before
    await resumed.close()
    kept = place.store()
    (last,) = (await kept.read(place.session_id(), 0))[-1:]
    assert last.tokens == UNCOUNTED  # a bound is never stored
    await kept.close()


@pytest.mark.stores("memory")
@pytest.mark.parametrize("turns_stored", [2, 44, 48])
async def test_view_by_bounds_is_the_view_by_exact_counts(
    place: Place, vocabulary: Vocabulary, turns_stored: int
) -> None:
    """With every question that is surely, perhaps or surely not too much, before and after the first compaction."""
    first = await filled(place, turns_stored)
    length, store = len(first.snapshot()), first.store
    await first.close()
    state = await store.load_checkpoint(place.session_id())
    assert state
    views: dict[str, list[Any]] = {"exact": [], "bounds": []}
    waited: list[bool] = []
    for size in range(0, 4_000, 250):
        for name in views:
            vocabulary.unload()
            if name == "exact":
                exact_token_counter()
            before = vocabulary.loads
            forked = manager_on(store, place.session_id(f"{name} {size}"), **EXACT)
            await store.fork(place.session_id(), forked.session_id, length)
            await store.save_checkpoint(forked.session_id, length, state)
            await forked.set_system_prompt_factory(_prompt)
            await forked.add_message(user("ask " * (size // 4) + "?") | {"timestamp": "2026-01-01T00:00:00Z"})
            views[name].append(await forked.get_messages_for_request())
            if name == "bounds":
                waited.append(vocabulary.loads > before)
            await forked.close()
    assert views["bounds"] == views["exact"]
    assert waited[0] is False
    assert any(waited) or turns_stored == 2


async def _prompt() -> str:
    return "You are careful. " * 12


@pytest.mark.stores("memory")
async def test_where_a_bound_cannot_decide_the_view_waits_for_the_vocabulary(
    place: Place, vocabulary: Vocabulary
) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("x" * 8_000))  # 2,000 tokens, at most 8,000: the budget is 6,000
    view = await manager.get_messages_for_request()
    assert vocabulary.loads == 1
    assert view[0]["content"] == "x" * 8_000
    assert manager.compactor.last_sent is not None
    assert manager.compactor.last_sent.counted == exact(view[0])


# -- what the provider reports of the first view -----------------------------------------------------------------------


@pytest.mark.stores("memory")
async def test_the_report_of_the_first_answer_is_compared_with_exact_counts(
    place: Place, vocabulary: Vocabulary
) -> None:
    """Compared with an upper bound it would be far too small, as that of a side call is."""
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there? " * 40))
    view = await manager.get_messages_for_request()
    reported = Response(model="m", provider="p", usage=Usage(exact(view[0])))
    manager.on_response(reported)
    await manager.add_message({"role": "assistant", "content": "seventeen"})
    response = manager.snapshot()[-1].response
    assert response is not None
    assert response.usage == reported.usage


@pytest.mark.stores("memory")
async def test_a_refusal_of_the_first_view_teaches_a_window_below_its_exact_count(
    place: Place, vocabulary: Vocabulary
) -> None:
    manager = manager_on(place.store(), place.session_id(), **EXACT)
    await manager.add_message(user("how many files are there? " * 40))
    (question,) = await manager.get_messages_for_request()
    manager.on_context_length_error()
    await manager.get_messages_for_request()
    window = manager.meter.known(("", "")).window
    assert window is not None
    assert window < exact(question)


# -- no vocabulary -----------------------------------------------------------------------------------------------------


@pytest.mark.stores("memory")
async def test_without_a_vocabulary_the_log_names_the_way_out_and_the_session_goes_on(
    place: Place, vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture
) -> None:
    first = await filled(place, 40)
    resumed = await again(first, place, **EXACT)
    vocabulary.unload()
    vocabulary.there_is = False
    await resumed.add_message(user("and now?"))
    shown = await resumed.get_messages_for_request()
    with caplog.at_level(logging.WARNING):
        await resumed.add_message({"role": "assistant", "content": "seventeen"})
        after = await resumed.get_messages_for_request()
    assert "pip install 'amplifier-context-core[exact]'" in caplog.text
    assert shown[-1] == after[-2]
    assert resumed.counter is approx_token_counter
    assert resumed.snapshot()[-1].tokens == count_message_tokens(resumed.snapshot()[-1].message)
    third = await again(resumed, place, **EXACT)
    assert (await third.get_messages_for_request())[-1] == after[-1]
    await third.store.close()


# -- bounds and processes ----------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec=None), max_size=300))
def test_no_text_has_more_tokens_than_its_bound(text: str) -> None:
    bound = BoundingTokenCounter("a vocabulary that no test loads")(text)
    assert exact_token_counter()(text) <= bound
    assert approx_token_counter(text) <= bound


_CHILD = """
import asyncio, json, sys
from amplifier_context_core import ContextManager, exact_token_counter, load_config, open_store
from amplifier_context_core.messages.token_bounds import BoundingTokenCounter
url, first = sys.argv[1:]
BoundingTokenCounter.start_loading = lambda self: None  # it would load while this looks what is loaded
if first == "load":
    exact_token_counter()
async def main():
    manager = ContextManager(load_config({"max_tokens": 6_000}), session_id="s", store=open_store(url))
    view = await manager.get_messages_for_request()
    loaded = sorted({"bpe_openai._bindings", "tiktoken"} & sys.modules.keys())
    gap = len(manager.snapshot().gap)
    await manager.store.close()
    print(json.dumps({"view": view, "loaded": loaded, "gap": gap}))
asyncio.run(main())
"""


def test_a_new_process_sends_the_same_bytes_with_and_without_the_vocabulary(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)

    async def fill() -> None:
        manager = await filled(place, 40)
        assert manager.compactor.compactions
        await manager.close()

    asyncio.run(fill())
    found = {first: _first_view(f"sqlite:{_file(place)}", first) for first in ("load", "leave")}
    assert found["leave"]["loaded"] == []
    assert found["load"]["loaded"] != []
    assert found["leave"]["gap"] > 0
    assert json.dumps(found["leave"]["view"]) == json.dumps(found["load"]["view"])


def _file(place: Place) -> Path:
    (found,) = (path for path in place.folder.rglob("*") if path.is_file() and path.suffix in (".db", ".sqlite"))
    return found


def _first_view(url: str, first: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, url, first]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_calls_that_wait_for_results_are_shown_with_placeholders_before_the_vocabulary_is_loaded(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """A placeholder is counted when it is rendered: its bound is enough, too."""
    place = Place("sqlite", tmp_path)
    first = await filled(place, 40)
    await first.add_message(user("look"))
    await first.add_message(call("c1"))
    await first.close()
    resumed = manager_on(place.store(), place.session_id(), **EXACT)
    vocabulary.unload()
    before = vocabulary.loads
    view = await resumed.get_messages_for_request()
    assert view[-1]["tool_call_id"] == "c1"
    assert vocabulary.loads == before
    await resumed.store.close()
