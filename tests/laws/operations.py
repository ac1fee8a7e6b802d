"""Operations of a session in any order: what hosts, people and loops do between two requests.

An operation is a name and what it takes, so that a failing example is read, shrunk and replayed.
"""

import asyncio
import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Entry, PinRefused, count_message_tokens
from amplifier_context_core.events import PREFIX_CHANGED
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.parsing import copy_message
from amplifier_context_core.stores import Store
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view.sent_view import SentView
from tests.manager.measured import state_of
from tests.managers import valid
from tests.messages import system

from .histories import ANY_STEPS, WORDS, Message, conversations, flat
from .managers import counting, new_manager, tokens_of

CLIPPED = (" characters cut", " left out for want of room")  # what a clipped text has in place of the rest

Operation = tuple[str, Any]


def operations(max_size: int = 16) -> st.SearchStrategy[list[Operation]]:
    """Operations, about half of them additions, several of which may come between two requests."""
    place, none = st.integers(0, 60), st.none()
    arguments: list[tuple[str, st.SearchStrategy[Any]]] = [
        *[("add", st.lists(ANY_STEPS, min_size=1, max_size=3))] * 3,
        *[("ask", st.sampled_from([0, 0, 0, 1]))] * 2,
        *((name, place) for name in ("pin", "unpin", "change", "remove", "fork", "forget")),
        *((name, none) for name in ("interrupt", "cancelled", "compact", "resume", "clear", "echo")),
        *((name, none | place) for name in ("preview", "undo")),
        *((name, st.tuples(place, WORDS)) for name in ("summary", "insert")),
        ("deny", st.booleans()),
        ("usage", st.integers(50, 200)),
        ("edit", st.tuples(place, st.lists(ANY_STEPS, max_size=2))),
        ("item", st.tuples(st.integers(0, 9), WORDS)),
        ("measured", st.tuples(st.integers(40, 300), st.booleans(), st.booleans())),
    ]
    return st.lists(st.one_of(*(st.tuples(st.just(name), given) for name, given in arguments)), max_size=max_size)


SESSIONS = st.tuples(conversations(max_steps=4).map(flat), operations())


@dataclass
class Hooks:
    """A hook registry with one handler, which postpones compactions while `deny` is set.

    Attributes:
        deny: postpone them.
        changed: another prefix was announced since a test looked.
    """

    deny: bool = False
    changed: bool = False

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        """Answer as the kernel's registry does."""
        self.changed |= event == PREFIX_CHANGED
        action = "deny" if self.deny and event == "context:pre_compact" else "continue"
        return SimpleNamespace(action=action, reason=None, data=data, context_injection=None, ephemeral=False)


@dataclass
class Driver:
    """A session under operations; each view is held to the laws.

    Attributes:
        make_store: gives a store on the same data, as another process would open it.
        session_id: of the session.
        budgets: tokens of the requests, by number; None is that of the config.
        config: settings.
        traces: a text that is erased leaves a trace, whose salt is drawn at random.
        taken: snapshots of this session, and what they held then.
        known: its messages by seq, as they were first seen.
    """

    make_store: Any
    session_id: str
    budgets: tuple[int | None, int | None]
    config: dict[str, Any]
    traces: bool = True
    hooks: Hooks = field(default_factory=Hooks)
    manager: ContextManager = field(init=False)
    last: dict[int, list[Message]] = field(default_factory=dict[int, list[Message]])  # since the last change
    handed_out: list[Message] | None = None  # the newest view, of whatever budget, in this process
    taken: list[tuple[Snapshot, list[Entry]]] = field(default_factory=list[tuple[Snapshot, list[Entry]]])
    known: dict[int, Message] = field(default_factory=dict[int, Message])

    def __post_init__(self) -> None:
        self.manager = self._new_manager()

    def _new_manager(self) -> ContextManager:
        self.handed_out = None
        return new_manager(self.make_store(), self.session_id, kindred=True, hooks=self.hooks, **self.config)

    async def run(self, first: list[Message], todo: list[Operation]) -> None:
        """Carry out a session to its end; always closes the store."""
        try:
            await self.carry_out([("add", [first]), *todo, ("ask", 0), ("resume", None)])
            await self._the_view_is_the_last_one()
        finally:
            await self.manager.close()

    async def carry_out(self, todo: Sequence[Operation]) -> None:
        """An operation returns False if it leaves the views as they are."""
        for name, argument in todo:
            if await getattr(self, f"_{name}")(argument) is not False:
                self.last.clear()

    # -- operations -------------------------------------------------------------------------------------------------

    async def _add(self, steps: list[list[Message]]) -> None:
        for message in flat(steps):
            await self.manager.add_message(copy.deepcopy(message))

    async def _ask(self, which: int) -> bool:
        view = await self._view(which)
        if which in self.last:
            assert view == self.last[which], "the view changed although nothing was done"
        self.last[which] = view
        return False

    async def _pin(self, place: int) -> bool:
        try:
            await self.manager.pin(f"m{place}")
        except PinRefused:
            return False
        return True

    async def _unpin(self, place: int) -> bool:
        with suppress(PinRefused):
            await self.manager.pin(f"m{place}", pinned=False)
        return False

    async def _summary(self, argument: tuple[int, str]) -> None:
        place, text = argument
        await self.manager.load()
        entry = self.manager.snapshot().find(place)
        if entry and entry.answered_ids:
            await self.manager.compact_summary(entry.answered_ids[0], text)

    async def _interrupt(self, _: None) -> None:
        await self.manager.interrupt()

    async def _cancelled(self, _: None) -> None:
        self.manager.history.on_cancelled()
        await self.manager.on_turn_complete()

    async def _compact(self, _: None) -> bool:
        return (await self.manager.compact())["compacted"]

    async def _preview(self, place: int | None) -> bool:
        """What a compaction would do is what it does next; until then nothing changes."""
        marks = None if place is None else f"m{place}"
        before = await state_of(self.manager)
        said = await self.manager.preview(marks)
        assert await state_of(self.manager) == before
        assert await self.manager.preview(marks) == {**said, **({"duration_ms": ANY} if "duration_ms" in said else {})}
        return False

    async def _deny(self, deny: bool) -> bool:
        self.hooks.deny = deny
        return False

    async def _usage(self, percent: int) -> None:
        last = self.manager.compactor.last_sent
        if last is not None:
            usage = {"input_tokens": max(1, last.counted * percent // 100)}
            await self.manager.add_message({"role": "assistant", "content": "ok", "metadata": {"usage": usage}})

    async def _edit(self, argument: tuple[int, list[Any]]) -> None:
        start, steps = argument
        stored = await self.manager.get_messages()
        await self.manager.set_messages([*stored[: start % (len(stored) + 1)], *flat(steps)])

    async def _fork(self, place: int) -> None:
        """Go on in a fork of the session, as `amplifier-context fork` makes one."""
        messages = await self.manager.get_messages()
        length = place % (len(messages) + 1)
        await self.manager.close()
        store: Store = self.make_store()
        forked = f"{self.session_id}f"
        await store.fork(self.session_id, forked, length)
        await store.close()
        self.session_id = forked
        self.taken, self.known = [], {}
        self.manager = self._new_manager()
        assert await self.manager.get_messages() == messages[:length]

    async def _forget(self, place: int) -> None:
        await self.manager.load()
        entry = self.manager.snapshot().find(place)
        erased = await self.manager.forget([f"m{place}"], trace=self.traces)
        assert (entry is None) or entry.mark in erased

    async def _undo(self, place: int | None) -> bool:
        return (await self.manager.undo(None if place is None else f"m{place}"))["undone"]

    async def _item(self, argument: tuple[int, str]) -> None:
        number, text = argument
        if number < 5:
            await self.manager.pool.add(ContextItem(text, f"item {number}", f"i{number}"))
        else:
            await self.manager.queue.append(ContextItem(text))

    async def _measured(self, argument: tuple[int, bool, bool]) -> bool:
        """A request that its provider counts. If it is not sent, it leaves no trace."""
        percent, retains, commits = argument
        await self.manager.load()
        people = [entry.message.get("content") for entry in self.manager.snapshot() if entry.human]
        retained = [text for text in people if isinstance(text, str) and text.strip()][:1] if retains else []
        result = await self.manager.measured_request_view(count_view=counting(percent), retain_contents=retained)
        view = valid(result["base_view"])
        if commits:
            assert await result["transaction"].commit()
            self._another_prefix_is_announced(view)
        else:
            result["transaction"].rollback()
        return commits

    async def _change(self, place: int) -> None:
        """Change the text of one message in its place, as hosts redact and repair."""
        stored = await self.manager.get_messages()
        changed = stored[place % len(stored)] if stored else {}
        if isinstance(changed.get("content"), str):
            changed["content"] = f"changed: {changed['content']}"
            await self.manager.set_messages(stored)

    async def _insert(self, argument: tuple[int, str]) -> None:
        place, text = argument
        stored = await self.manager.get_messages()
        stored.insert(place % (len(stored) + 1), {"role": "assistant", "content": f"inserted: {text}"})
        await self.manager.set_messages(stored)

    async def _remove(self, place: int) -> None:
        stored = await self.manager.get_messages()
        del stored[place : place + 1]
        await self.manager.set_messages(stored)

    async def _clear(self, _: None) -> None:
        await self.manager.clear()

    async def _echo(self, _: None) -> None:
        await self.manager.set_messages(await self.manager.get_messages())

    async def _resume(self, _: None) -> bool:
        messages = await self.manager.get_messages()
        await self.manager.close()
        self.manager = self._new_manager()
        await self.manager.ready()
        await self._the_view_is_the_last_one()
        assert await self.manager.get_messages() == messages
        return False

    async def _explain(self, _: object) -> None:
        await self.manager.explain()

    async def _hook(self, _: object) -> None:
        await self.manager.add_message(system(f"Notice {len(self.manager.snapshot())}.", metadata={"source": "hook"}))

    async def _model(self, name: str) -> None:
        self.model = name  # that is asked, where a session has several

    # -- laws -------------------------------------------------------------------------------------------------------

    async def _the_view_is_the_last_one(self) -> None:
        for which in list(self.last):
            view = self.last.get(which)  # the request before may have changed the others
            assert await self._view(which) == view or view is None, "the view after a resume differs from the last one"

    async def _view(self, which: int) -> list[Message]:
        manager = self.manager
        before = manager.compactor.compactions, len(manager.snapshot())
        view = await manager.get_messages_for_request(token_budget=self.budgets[which])
        self._another_prefix_is_announced(view)
        if (manager.compactor.compactions, len(manager.snapshot())) != before:  # a shorter list of items may be added
            self.last.clear()
        valid(view)
        report = await manager.explain()
        assert tokens_of(*view) == report["view"]["counted"]
        last = manager.compactor.last_sent
        assert (last is not None and last.counted <= last.limits.capacity) or "overflow" in manager.warnings.kinds
        await self._everything_is_accounted_for(report)
        return view

    def _another_prefix_is_announced(self, view: list[Message]) -> None:
        """A loop that sends only what is new, to a provider that keeps the rest, learns when it must send all."""
        before, self.handed_out = self.handed_out, view
        announced, self.hooks.changed = self.hooks.changed, False
        assert before is None or announced or view[: len(before)] == before, "another prefix was not announced"

    async def _everything_is_accounted_for(self, report: dict[str, Any]) -> None:
        """Each entry is shown, folded or dropped by a compaction; the newest human message is shown."""
        manager = self.manager
        await manager.load()
        history = manager.snapshot()
        await self._the_history_only_grew(history)
        assert json.loads(json.dumps(report)) == report
        assert (report["messages"], report["turns"]) == (len(history), manager.turn_count)
        last = manager.compactor.last_sent
        assert last is not None
        shown = {message.seq for message in last.messages}
        body = [history[index] for index in range(history.leading_count, len(history))]
        humans = [entry for entry in body if entry.human and not _is_hidden(entry.message)]
        if humans:
            assert humans[-1].seq in shown, f"the newest human message m{humans[-1].seq} is not in the view"
            assert not clips_needlessly(last, humans[-1]), f"the newest human message m{humans[-1].seq} is clipped"
        spans = [(int(row["mark"][1:]), int(row["to"][1:]), row["state"]) for row in report["rounds"]]
        places = {entry.seq: place for place, entry in enumerate(body)}  # an edited message has a higher seq
        for entry in body:
            place = places[entry.seq]
            states = {
                state
                for first, to, state in spans
                if first <= entry.seq <= to or places.get(first, place + 1) <= place <= places.get(to, -1)
            }
            assert states or not _is_spoken(entry), f"{entry.mark} is unaccounted"
            if report["compactions"] == 0:
                assert "dropped" not in states, f"{entry.mark} was dropped without a compaction"

    async def _the_history_only_grew(self, history: Snapshot) -> None:
        """A snapshot shows for ever what it showed, a mark is of one message, and the store holds what is shown."""
        entries = list(history)
        self.taken.append((history, entries))
        for snapshot, kept in self.taken:
            assert list(snapshot) == kept
        assert [history.find(entry.seq) for entry in entries] == entries
        assert history[::-1] == entries[::-1]
        assert len({entry.seq for entry in entries}) == len(entries)
        for entry in entries:
            known = self.known.setdefault(entry.seq, copy_message(entry.message))
            assert entry.is_redacted or entry.message == known, f"{entry.mark} is of another message than before"
            assert entry.tokens == count_message_tokens(entry.message)
        turns = [entry.turn for entry in entries]
        assert turns == sorted(turns)
        assert self.manager.turn_count == sum(entry.human for entry in entries)
        assert await self.manager.store.read(self.session_id) == entries


def clips_needlessly(sent: SentView, human: Entry) -> bool:
    """True if a view clips a message that fits beside the system prompt and an eighth of the budget.

    A view that would exceed its budget all the same, for what no clipping makes smaller, may clip it. Results that it
    brings are clipped as all outputs are.
    """
    if human.answered_ids:
        return False
    system, capacity = sum(shown.tokens for shown in sent.system), sent.limits.capacity
    parts = [shown for shown in sent.messages if shown.seq == human.seq]
    text = "".join(json.dumps(shown.message) for shown in parts if shown.message["role"] == "user")
    if human.tokens > capacity - capacity // 8 - system or not any(mark in text for mark in CLIPPED):
        return False
    return sent.counted - sum(shown.tokens for shown in parts) + human.tokens <= capacity


def _is_hidden(message: Message) -> bool:
    """True for rows of hosts that no provider is sent."""
    metadata = message.get("metadata") or {}
    instruction = metadata.get("amplifier:instruction") or {}
    return metadata.get("amplifier_public_reference_only") is True or instruction.get("disposition") == "retired"


def _is_spoken(entry: Entry) -> bool:
    """True if a view without a checkpoint shows the entry: it has a text of its own, and is no result."""
    content = entry.message.get("content")
    text = isinstance(content, str) and content.strip()
    return bool(text) and not entry.answered_ids and not _is_hidden(entry.message)


def run(driver: Driver, session: tuple[list[Message], list[Operation]]) -> None:
    asyncio.run(driver.run(*session))
