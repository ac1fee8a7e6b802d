"""Law: what was forgotten is nowhere any more, whatever a host gives back of its own copy; all else is kept."""

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, calls_of, copy_message
from amplifier_context_core.stores import MemoryStore, Store, open_store
from amplifier_context_core.transcript.redaction import is_redacted
from tests.managers import feed
from tests.messages import Message, block, result, says, user

SECRET = "sk-live-4242-topsecret"
LONG = "call_IuR7Jj3zNfGq5x0b"

TEXTS = st.tuples(st.sampled_from(["yes", "go on", "", "wait: "]), st.sampled_from(["", "", SECRET])).map("".join)


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """One message, or a round of a tool; ids may come again."""
    kind = draw(st.sampled_from(["user", "user", "assistant", "system", "round", "blocks"]))
    text = draw(TEXTS)
    if kind == "blocks":
        return [user([block(text), block("and more")])]
    if kind != "round":
        return [{"role": kind, "content": text}]
    id = draw(st.sampled_from(["call_0", "call_1", LONG]))
    called = [{"id": id, "tool": "t", "arguments": {"value": text, "nothing": None}}]
    return [says(None, tool_calls=called), result(id, draw(TEXTS))]


def with_unique_ids(talk: list[list[Message]]) -> list[Message]:
    """The messages of a talk; each long id is given once."""
    texts = [json.dumps(step).replace(LONG, f"{LONG}{number}") for number, step in enumerate(talk)]
    return [message for step in texts for message in json.loads(step)]


TALKS = st.lists(steps(), min_size=1, max_size=7).map(with_unique_ids)


def filtered(message: Message) -> Message:
    """Without null values, and with the time it was saved."""
    left = {key: value for key, value in message.items() if value is not None}
    return {**left, "timestamp": "2033-01-01T00:00:00.001+00:00"}


def stripped(message: Message) -> Message:
    return {key: value for key, value in message.items() if key not in ("metadata", "timestamp")}


def restamped(message: Message) -> Message:
    return {**stripped(message), "metadata": {"timestamp": "2033-01-01T00:00:00.001+00:00"}}


FORMS = st.sampled_from([copy_message, filtered, stripped, restamped])
SLICES = st.sampled_from([slice(None), slice(1, None), slice(0, -1), slice(2, 5), slice(None, None, 2)])
GIVEN = st.tuples(st.sampled_from(["set"]), FORMS, SLICES, st.booleans(), st.booleans())
DOINGS = st.lists(
    st.one_of(GIVEN, st.sampled_from([("replay",), ("clear",), ("resume",), ("own",), ("view",)])), max_size=5
)
# Milliseconds between two messages: 0 gives several the same time.
CLOCKS = st.sampled_from([[1], [0, 0, 1], [1000]])


class Life:
    """A session, its store, and the host's own copy of it."""

    def __init__(self, store: Callable[[], Store], ticks: list[int]) -> None:
        self._open, self._ticks, self._now = store, itertools.cycle(ticks), 0
        self.manager = self._opened()
        self.added = 0

    def _opened(self) -> ContextManager:
        config = load_config({"token_counter": "heuristic", "max_tokens": 900})
        return ContextManager(config, session_id="s", store=self._open(), clock=self._clock)

    def _clock(self) -> str:
        self._now += next(self._ticks)
        return f"2026-01-01T00:{self._now // 60_000:02}:{self._now // 1000 % 60:02}.{self._now % 1000:03}+00:00"

    async def do(self, doing: tuple[Any, ...], copy: list[Message]) -> None:
        match doing[0]:
            case "set":
                _, form, part, without_system, adds = doing
                given = [form(message) for message in copy[part]]
                if without_system:
                    given = [message for message in given if message["role"] not in SYSTEM_ROLES]
                self.added += adds
                given += [user(f"new {self.added}")] if adds else []
                await self.manager.set_messages(given)
                self._check(given, await self.manager.get_messages())
            case "replay":
                await feed(self.manager, map(copy_message, copy))
            case "clear":
                await self.manager.clear()
            case "resume":
                await self.manager.close()
                self.manager = self._opened()
            case "own":
                await self.manager.set_messages(await self.manager.get_messages())
            case _:
                await self.manager.get_messages_for_request()

    def _check(self, given: list[Message], history: list[Message]) -> None:
        """The history is what was given, but for what was erased."""
        given = [message for message in given if message["role"] not in SYSTEM_ROLES]
        spoken = [message for message in history if message["role"] not in SYSTEM_ROLES]
        assert len(spoken) == len(given)
        for ours, theirs in zip(spoken, given, strict=True):
            assert ours["role"] == theirs["role"]
            if SECRET in json.dumps(theirs):
                assert is_redacted(ours)
            elif not is_redacted(theirs):
                assert (ours.get("content"), list(calls_of(ours))) == (theirs.get("content"), list(calls_of(theirs)))

    async def everything(self) -> str:
        store = self.manager.store
        view = await self.manager.get_messages_for_request()
        stored = [entry.message for entry in [*await store.read("s"), *await store.archived("s")]]
        saved = await store.load_checkpoint("s") or b""
        return json.dumps([await self.manager.get_messages(), view, stored, saved.decode()])


async def lived(life: Life, talk: list[Message], doings: list[tuple[Any, ...]]) -> None:
    for message in talk:
        await life.manager.add_message(message)
        await life.manager.get_messages_for_request()
    copy = await life.manager.get_messages()
    await life.manager.forget(containing=SECRET)
    assert SECRET not in await life.everything()
    for doing in doings:
        await life.do(doing, copy)
        assert SECRET not in await life.everything()
    await life.manager.close()


@given(TALKS, CLOCKS, DOINGS)
def test_what_was_forgotten_stays_forgotten(talk: list[Message], ticks: list[int], doings: list[Any]) -> None:
    store = MemoryStore()
    asyncio.run(lived(Life(lambda: store, ticks), talk, doings))


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
@settings(max_examples=12)
@given(talk=TALKS, ticks=CLOCKS, doings=DOINGS)
def test_it_is_in_no_byte_of_the_files(scheme: str, talk: list[Message], ticks: list[int], doings: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    url = f"{scheme}:{folder / ('sessions' if scheme == 'jsonl' else 'sessions.db')}"
    try:
        asyncio.run(lived(Life(lambda: open_store(url, durability="none"), ticks), talk, doings))
        for path in folder.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path.name
    finally:
        shutil.rmtree(folder)
