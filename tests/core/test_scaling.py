"""The cost of a view: linear in calls, bounded in what one output holds, and never paid on the event loop at length."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.compaction import checkpoint
from amplifier_context_core.compaction.checkpoint import Draft, segment_of
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.compaction.distant import DistantHistory
from amplifier_context_core.compaction.strategies.base import Goal
from amplifier_context_core.compaction.strategies.outputs import ClipToolOutputs
from amplifier_context_core.config import load_config
from amplifier_context_core.messages.parsing import MessageInfo, parse_message
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import Round, RoundList
from amplifier_context_core.transcript import returned_views
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.returned_views import HandedView, HandedViews, Shown
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_core.view.view import View
from tests.core.drafts import transcript
from tests.messages import Message, call, result, says, user

FEW, MANY = 100, 400
LINEAR = 1.5 * MANY / FEW  # a quadratic cost grows by the square of MANY / FEW
ON_LOOP = 60_000  # characters that one call may count on the event loop


class Id(str):
    """A call id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Id.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def parallel(count: int) -> list[Entry]:
    """A message of many calls, and their results in the opposite order: some a message each, the others in one."""
    ids = [Id(f"call_{number}") for number in range(count)]
    calls: list[Any] = [{"id": id, "tool": "read", "arguments": {}} for id in ids]
    given = [(says("", tool_calls=calls), MessageInfo("assistant", tuple(ids), (), False))]
    back = [Id(id) for id in reversed(ids)]
    each, rest = back[: count // 2], tuple(back[count // 2 :])
    given += [(result(id, "found " * 20), MessageInfo("tool", (), (id,), False)) for id in each]
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": "found " * 20} for id in rest]
    given.append((user(blocks), MessageInfo("user", (), rest, False)))
    history = Transcript("s")
    for message, info in given:
        history.append(history.draft(message, info, 40, created="2026-01-01T00:00:00.000+00:00"))
    return list(history.snapshot())


def paired(entries: Sequence[Entry]) -> Round:
    (round_,) = RoundList(entries).rounds
    return round_


def rendered(round_: Round, limit: int = 100_000) -> RenderedRound:
    renderer = Renderer(approx_token_counter, limit)
    for entry in round_.entries:
        renderer.register_calls(entry)
    return renderer.render(round_)


WORK: dict[str, Callable[[Sequence[Entry], Round, Draft], object]] = {
    "pair": lambda entries, round_, draft: paired(entries),
    "render": lambda entries, round_, draft: rendered(round_),
    "clip at any age": lambda entries, round_, draft: rendered(round_, limit=1),
    "digest": lambda entries, round_, draft: digest_round(round_, set(), approx_token_counter, share=0.25),
    "clip": lambda entries, round_, draft: ClipToolOutputs(30).apply(draft, Goal(1, 1, protected_results=0)),
}


def compared(count: int, work: str) -> int:
    """How often call ids are compared when one round of so many calls is worked on."""
    entries = parallel(count)
    round_ = paired(entries)
    whole = segment_of(round_, rendered(round_).messages)
    Id.compared = 0
    WORK[work](entries, round_, Draft((whole,)))
    return Id.compared


@pytest.mark.parametrize("work", WORK)
def test_the_work_for_parallel_calls_grows_as_they_do(work: str) -> None:
    few, many = compared(FEW, work), compared(MANY, work)
    assert many <= LINEAR * max(few, FEW)


async def test_compactions_read_the_names_of_each_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = checkpoint.identifiers

    def identifiers(text: str, limit: int) -> list[str]:
        read.append(text)
        return real(text, limit)

    monkeypatch.setattr(checkpoint, "identifiers", identifiers)
    manager = ContextManager(load_config({"max_tokens": 8_000, "chapter_share": 0.9}), counter=approx_token_counter)
    await manager.add_message(user("Fix src/loader.py. Never edit src/generated.py."))
    for number in range(100):
        await manager.add_message(call(f"c{number}", path=f"src/m{number}.py"))
        await manager.add_message(result(f"c{number}", f"{number}\n" + "row of the table\n" * 60))
        await manager.get_messages_for_request()
    assert manager.compactor.compactions > 3
    assert len(read) == len(set(read)) > 0


async def test_a_round_that_grows_while_history_is_read_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, real = list[int](), Renderer.render

    def counted(self: Renderer, round_: Round) -> RenderedRound:
        shown.append(len(round_.entries))
        return real(self, round_)

    monkeypatch.setattr(Renderer, "render", counted)
    ids = [f"c{number}" for number in range(2_000)]
    history = transcript([call(*ids), *map(result, ids)]).snapshot()
    view = View(None, 10**6, Renderer(approx_token_counter, 10**5, output_bytes=10**6), DistantHistory(()))
    assert await view.update(history, 0, frozenset())
    assert sum(shown) == len(history)


@pytest.mark.parametrize("own_times", [True, False])
def test_a_returned_view_with_times_is_looked_up_in_the_history_once(
    own_times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = [0], returned_views.timestamp_of

    def counted(message: Message) -> str | None:
        read[0] += 1
        return real(message)

    monkeypatch.setattr(returned_views, "timestamp_of", counted)
    stamps = [{"timestamp": f"2026-01-01T00:00:{second:02}.000+00:00"} for second in (1, 1 + own_times)]
    stored = transcript(says(f"all of {number}", metadata=stamps[0]) for number in range(MANY)).snapshot()
    shown = [Shown(says(f"part of {entry.seq}"), (entry.seq,)) for entry in stored[: MANY // 2]]
    handed = HandedViews([HandedView(shown, MANY)])
    given = [parse_message({**one.message, "metadata": stamps[1]}) for one in shown]
    assert returned_views.recognise(stored[:], given, handed) == stored[:]
    assert read[0] <= 2 * MANY


# -- where the time is spent -------------------------------------------------------------------------------------------
RECORDS = json.dumps([{"id": number, "value": "xxxxx"} for number in range(160_000)])
NESTED = {"results": [{"id": number, "size": {"w": number, "h": 1.5}} for number in range(9_000)], "large": 10**30}


GIANTS: dict[str, Callable[[], list[Message]]] = {
    "records": lambda: [result("c0", RECORDS)],
    "deep": lambda: [result("c0", "[" * 300_000 + "]" * 300_000)],
    "text block": lambda: [result("c0", [{"type": "text", "text": "line of a log\n" * 80_000}])],
    "nested records": lambda: [user([{"type": "tool_result", "tool_use_id": "c0", "output": NESTED}])],
    "many of some length": lambda: [result(f"c{number}", RECORDS[: ON_LOOP - 1]) for number in range(10)],
}


@pytest.mark.parametrize("kind", GIANTS)
async def test_giant_outputs_are_counted_and_rendered_off_the_event_loop(kind: str) -> None:
    here, home = [0], threading.get_ident()

    def counter(text: str) -> int:
        here[0] += len(text) * (threading.get_ident() == home)
        return -(-len(text) // 4)

    manager = ContextManager(load_config({"max_tokens": 400_000, "output_share": 0.1}), counter=counter)
    outputs = GIANTS[kind]()
    for message in (user(), call(*(f"c{number}" for number in range(len(outputs)))), *outputs):
        here[0] = 0
        await manager.add_message(message)
        assert here[0] <= ON_LOOP
    here[0] = 0
    assert len(await manager.get_messages_for_request()) == 2 + len(outputs)
    assert here[0] <= ON_LOOP
