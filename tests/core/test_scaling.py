"""The cost of a view: linear in calls, bounded in what one output holds, and never paid on the event loop at length."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.compaction.checkpoint import Draft, segment_of
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.compaction.strategies.base import Goal
from amplifier_context_core.compaction.strategies.outputs import ClipToolOutputs
from amplifier_context_core.config import load_config
from amplifier_context_core.messages.parsing import MessageInfo
from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import Round, RoundList
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Transcript
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
