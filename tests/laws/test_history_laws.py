"""Laws of history: any additions, edits, interrupts and requests, in any order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, approx_token_counter, count_message_tokens, count_tokens, load_config
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, copy_message
from amplifier_context_core.rendering.renderer import Renderer
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view import shared_cache

from .histories import Message, Step, conversations

BUDGET = 600
DOINGS = st.sampled_from(["", "", "", "request", "interrupt", "drop", "insert", "clear", "compact", "fork"])


class Life:
    """A session to which everything happens that may, and what was known of it on the way."""

    def __init__(self) -> None:
        shared_cache.clear()
        self.manager = ContextManager(
            load_config({"token_counter": "heuristic"}), session_id="s", clock=lambda: "2026-01-01T00:00:00.000+00:00"
        )
        self.taken: list[tuple[Snapshot, list[Entry]]] = []
        self.known: dict[int, Message] = {}

    async def live(self, steps: list[Step], doings: list[str]) -> None:
        for step, doing in zip(steps, doings, strict=False):
            for message in step:
                await self.manager.add_message(message)
            snapshot = self.manager.snapshot()
            self.taken.append((snapshot, list(snapshot)))
            self.known.update({entry.seq: copy_message(entry.message) for entry in snapshot})
            await self._do(doing)

    async def _do(self, doing: str) -> None:
        manager = self.manager
        match doing:
            case "request":
                await manager.get_messages_for_request(token_budget=BUDGET)
            case "interrupt":
                await manager.interrupt()
            case "drop":
                await manager.set_messages((await manager.get_messages())[:-2])
            case "insert":
                messages = await manager.get_messages()
                inserted = {"role": "assistant", "content": f"inserted after {len(messages)}"}
                await manager.set_messages([*messages[: len(messages) // 2], inserted, *messages[len(messages) // 2 :]])
            case "clear":
                await manager.clear()
            case "compact":
                await manager.compact()
            case "fork":
                await manager.set_messages(await manager.get_messages())
            case _:
                pass


LIVES = (conversations(), st.lists(DOINGS, min_size=18, max_size=18))


def lived(steps: list[Step], doings: list[str]) -> Life:
    life = Life()
    asyncio.run(life.live(steps, doings))
    return life


@given(*LIVES)
def test_a_snapshot_shows_for_ever_what_it_showed(steps: list[Step], doings: list[str]) -> None:
    for snapshot, entries in lived(steps, doings).taken:
        assert list(snapshot) == entries
        assert [snapshot.find(entry.seq) for entry in entries] == entries
        assert snapshot[::-1] == entries[::-1]


@given(*LIVES)
def test_a_mark_never_points_at_another_message_than_it_did(steps: list[Step], doings: list[str]) -> None:
    life = lived(steps, doings)
    for entry in life.manager.snapshot():
        assert life.known.get(entry.seq, entry.message) == entry.message


@given(*LIVES)
def test_seqs_are_given_once(steps: list[Step], doings: list[str]) -> None:
    life = lived(steps, doings)
    seqs = [entry.seq for entry in life.manager.snapshot()]
    assert len(seqs) == len(set(seqs))
    highest = max(seqs, default=0)
    entry = asyncio.run(life.manager.history.add({"role": "user", "content": "one more, never said before"}))
    assert entry is not None
    assert entry.seq > highest
    assert entry.seq not in life.known


@given(*LIVES)
def test_the_store_holds_what_the_history_shows(steps: list[Step], doings: list[str]) -> None:
    life = lived(steps, doings)
    assert asyncio.run(life.manager.store.read("s")) == list(life.manager.snapshot())


@given(*LIVES)
def test_turns_rise_and_are_counted(steps: list[Step], doings: list[str]) -> None:
    life = lived(steps, doings)
    history = life.manager.snapshot()
    turns = [entry.turn for entry in history]
    assert turns == sorted(turns)
    assert life.manager.turn_count == history.turn_count == sum(entry.human for entry in history)


@given(*LIVES)
def test_the_tokens_of_an_entry_are_those_of_its_message(steps: list[Step], doings: list[str]) -> None:
    for entry in lived(steps, doings).manager.snapshot():
        assert entry.tokens == count_message_tokens(entry.message)


@given(*LIVES)
def test_explain_accounts_for_every_message_in_plain_json(steps: list[Step], doings: list[str]) -> None:
    # What is put in the middle and dropped is in tests/core/test_ladder.py, test_all_that_was_dropped_...
    life = lived(steps, ["" if doing == "insert" else doing for doing in doings])

    async def law() -> dict[str, Any]:
        await life.manager.get_messages_for_request(token_budget=BUDGET)
        return await life.manager.explain()

    report = asyncio.run(law())
    assert json.loads(json.dumps(report)) == report
    history = life.manager.snapshot()
    assert (report["messages"], report["turns"]) == (len(history), history.turn_count)
    spans = [range(int(row["mark"][1:]), int(row["to"][1:]) + 1) for row in report["rounds"]]
    leading = next((place for place, entry in enumerate(history) if entry.role not in SYSTEM_ROLES), len(history))
    for round_ in rounds_of(history[leading:]):
        if Renderer(approx_token_counter, 10_000).render(round_).messages:  # empty and retired rows have no place
            for entry in round_.entries:
                assert any(entry.seq in span for span in spans), f"{entry.mark} is not accounted for"


@given(conversations())
async def test_compacting_by_hand_again_never_makes_a_view_larger(steps: list[Step]) -> None:
    life = Life()
    await life.live(steps, [""] * len(steps))
    size = count_tokens(await life.manager.get_messages_for_request(token_budget=BUDGET))
    for _ in range(3):
        report = await life.manager.compact()
        # Of a view above the budget a request has a clipped copy, and of one that fits again the whole view.
        limit = report["before_tokens"] if report["compacted"] else size
        size = count_tokens(await life.manager.get_messages_for_request(token_budget=BUDGET))
        assert size <= limit
