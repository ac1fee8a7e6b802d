"""The cost of a view is linear in its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from amplifier_context_core import render
from amplifier_context_core.checkpoint import Draft, segment_of
from amplifier_context_core.digest import digest_line
from amplifier_context_core.messages import Reading
from amplifier_context_core.render import RenderedRound, Renderer
from amplifier_context_core.rounds import Round, RoundList
from amplifier_context_core.strategies.base import Goal
from amplifier_context_core.strategies.outputs import ClipToolOutputs
from amplifier_context_core.tokens import approx_token_counter
from amplifier_context_core.transcript import Entry, Transcript

from .support import Message

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


def parallel(count: int, shape: str) -> list[Entry]:
    """A message of many calls, and their results in the opposite order: a message each, or all in one."""
    ids = [Id(f"call_{number}") for number in range(count)]
    back = [Id(id) for id in reversed(ids)]
    calls: list[Any] = [{"id": id, "tool": "read", "arguments": {}} for id in ids]
    given: list[tuple[Message, Reading]] = [
        ({"role": "assistant", "content": "", "tool_calls": calls}, Reading("assistant", tuple(ids), (), False))
    ]
    if shape == "a message each":
        given += [
            ({"role": "tool", "tool_call_id": id, "content": "found " * 20}, Reading("tool", (), (id,), False))
            for id in back
        ]
    else:
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": "found " * 20} for id in back]
        given.append(({"role": "user", "content": blocks}, Reading("user", (), tuple(back), False)))
    history = Transcript("s")
    for message, reading in given:
        history.append(history.draft(message, reading, 40, created="2026-01-01T00:00:00.000+00:00"))
    return list(history.snapshot())


def paired(entries: Sequence[Entry]) -> Round:
    (held,) = RoundList(entries).rounds
    return held


def rendered(held: Round, limit: int = 100_000) -> RenderedRound:
    renderer = Renderer(approx_token_counter, limit)
    for entry in held.entries:
        renderer.claim(entry)
    return renderer.render(held)


async def compared(count: int, shape: str, work: str) -> int:
    """How often call ids are compared when one round of so many calls is worked on."""
    entries = parallel(count, shape)
    held = paired(entries)
    whole = segment_of(held, rendered(held).messages)
    Id.compared = 0
    if work == "pair":
        paired(entries)
    elif work == "render":
        rendered(held)
    elif work == "clip at any age":
        rendered(held, limit=1)
    elif work == "digest":
        digest_line(held, set(), approx_token_counter, share=0.25)
    else:
        shorter = await ClipToolOutputs(30).apply(
            Draft((whole,)), Goal(1, 1, approx_token_counter, protected_results=0)
        )
        assert shorter.tokens < whole.tokens
    return Id.compared


@pytest.mark.parametrize("work", ["pair", "render", "clip at any age", "digest", "clip"])
@pytest.mark.parametrize("shape", ["a message each", "one message"])
async def test_the_work_for_parallel_calls_grows_as_they_do(shape: str, work: str) -> None:
    few, many = await compared(FEW, shape, work), await compared(MANY, shape, work)
    assert many <= LINEAR * max(few, FEW)


async def test_the_text_of_a_message_of_many_results_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    real = render.text_of

    def text_of(content: object) -> str:
        nonlocal read
        text = real(content)
        read += len(text)
        return text

    monkeypatch.setattr(render, "text_of", text_of)
    held = paired(parallel(MANY, "one message"))
    read = 0
    rendered(held)
    assert read <= 3 * MANY * len("found " * 20)
