"""The store contract by random histories: after any sequence of calls a store returns what the reference store does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from dataclasses import replace as but
from itertools import count
from typing import Any, ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_core.transcript.entry import Entry

from .fixtures import StoreFixtures, whole
from .samples import differing, entry, odd_messages

NAMES = ("a", "b", "c")

# Numbers are shares of what there is when the step is taken, in thousandths; over 1,000 is beyond it.
_SHARE = st.integers(0, 1_000)
_NAME = st.sampled_from((*NAMES, *"aaaaa"))
_TEXTS = st.sampled_from(("ok", "", "line\nline", "\u2028", "読んで", "x" * 9_000, "\0", "cut \ud83d"))
_BATCH = st.lists(_TEXTS | st.sampled_from(sorted(odd_messages())), max_size=6)


@dataclass(frozen=True)
class Step:
    """One call, drawn before it is known what it will meet."""

    what: str
    name: str = "a"
    share: int = 0
    texts: list[str] = field(default_factory=list[str])
    data: bytes = b""
    other: str = "b"


def steps() -> st.SearchStrategy[list[Step]]:
    append = st.builds(Step, st.just("append"), _NAME, texts=_BATCH)
    one = st.one_of(
        append,
        append,
        append,
        st.builds(Step, st.just("replace"), _NAME, st.integers(0, 1_200), _BATCH),
        st.builds(Step, st.just("move"), _NAME, _SHARE, _BATCH),
        st.builds(Step, st.sampled_from(["rewrite", "recount"]), _NAME, _SHARE, _BATCH),
        st.builds(Step, st.just("checkpoint"), _NAME, st.integers(0, 1_200), data=st.binary(max_size=40)),
        st.builds(Step, st.just("fork"), _NAME, st.integers(0, 1_200), other=_NAME),
        st.builds(Step, st.sampled_from(["clear", "delete", "open", "release", "close"]), _NAME),
        st.builds(Step, st.just("find"), _NAME, st.integers(0, 7)),
        st.builds(Step, st.just("read"), _NAME, st.integers(-1_200, 1_200), data=st.binary(max_size=2)),
    )
    return st.lists(one, min_size=6, max_size=25)


class Pair:
    """A store and the reference store, and the calls both are given."""

    def __init__(self, store: Store, names: dict[str, str]) -> None:
        self.store, self.model, self.names = store, MemoryStore(), names
        self.seq = 0

    async def take(self, step: Step) -> None:
        """Call both, and compare what they answer and what they raise."""
        method, *arguments = await self._call(step)
        ours, theirs = await self._ask(self.store, method, arguments), await self._ask(self.model, method, arguments)
        if method in ("read", "find"):
            assert not differing(ours, theirs), f"{method}{arguments}"
        else:
            assert ours == theirs, f"{method}{arguments}"

    async def _ask(self, store: Store, method: str, arguments: list[Any]) -> Any:
        try:
            return await getattr(store, method)(*arguments)
        except StoreError:
            return StoreError

    async def _call(self, step: Step) -> tuple[Any, ...]:
        name = self.names[step.name]
        history, archive = await self.model.read(name), await self.model.archived(name)
        place = (len(history) * step.share + 999) // 1_000
        new = self._new(step.texts, name)
        match step.what:
            case "append":
                return "append", name, new
            case "replace":
                return "replace", name, place, new
            case "move":
                tail = history[place:]
                return (
                    "replace",
                    name,
                    place,
                    [*tail[1::2], *new, *tail[::3][:1]] if len(tail) > 3 else [*new, *tail[::-1]],
                )
            case "clear":
                return "replace", name, 0, []
            case "rewrite" | "recount":
                return "rewrite", name, self._changed(step, [*history, *archive])
            case "checkpoint":
                return "save_checkpoint", name, place, step.data
            case "fork":
                return "fork", name, self.names[step.other], place
            case "read":
                stop = None if not step.data else step.data[0] % (len(history) + 3)
                return "read", name, place, stop
            case "find":
                return "find", name, range(step.share, self.seq + 2, 1 + step.share)
            case "close":
                return ("close",)
            case _:
                return step.what, name

    def _new(self, texts: list[str], name: str) -> list[Entry]:
        made: list[Entry] = []
        odd = odd_messages()
        for text in texts:
            self.seq += 1
            made.append(entry(self.seq, odd.get(text, {"role": "user", "content": text}), session_id=name))
        return made

    def _changed(self, step: Step, kept: list[Entry]) -> list[Entry]:
        chosen = kept[:: 2 + step.share % 3]
        if step.what == "recount":
            return [one._replace(tokens=one.tokens + 1) for one in chosen]
        changed = {"role": "assistant", "content": "".join(step.texts).encode("utf-8", "replace").decode()}
        return [entry(one.seq, changed, session_id=one.session_id) for one in chosen]

    async def compare(self, *, archives: bool, name: str | None = None) -> None:
        """Everything both say of these sessions is the same."""
        for session_id in self.names.values() if name is None else [self.names[name]]:
            ours, theirs = await whole(self.store, session_id), await whole(self.model, session_id)
            problem = ours.differs(theirs if archives else but(theirs, archive=[]))
            assert not problem, f"{session_id}: {problem}"
        if name is None:
            listed = {info.session_id: info.length for info in await self.store.sessions()}
            expected = {info.session_id: info.length for info in await self.model.sessions()}
            assert {one: listed[one] for one in listed if one in self.names.values()} == expected


class MatchesReference(StoreFixtures):
    """Random calls, given to a store and to the reference store alike; in a soak many, and others each time."""

    soak: ClassVar[bool] = False

    async def test_any_history_is_what_the_reference_store_makes_of_it(self, store: Store) -> None:
        async def hold(drawn: list[Step], names: dict[str, str]) -> None:
            pair = Pair(store, names)
            for step in drawn:
                await pair.take(step)
                await pair.compare(archives=self.archives, name=step.name)
            await pair.compare(archives=self.archives)
            await store.close()
            await pair.compare(archives=self.archives)
            for session_id in names.values():
                await store.delete(session_id)

        await hold_for_any(hold, self.examples * (40 if self.soak else 1), derandomize=not self.soak)


class SoakContract(MatchesReference):
    """Tests very many random histories, different in every run. Inherit it in a class of its own, marked as slow."""

    soak = True


async def hold_for_any(
    hold: Callable[[list[Step], dict[str, str]], Coroutine[Any, Any, None]], examples: int, *, derandomize: bool = True
) -> None:
    """Try histories, each with sessions and an event loop of its own."""
    number = count()

    @settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(steps())
    def holds(drawn: list[Step]) -> None:
        run = next(number)
        asyncio.run(hold(drawn, {name: f"{name} of history {run}" for name in NAMES}))

    await asyncio.to_thread(holds)
