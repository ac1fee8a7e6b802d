"""Rounds of plain messages, rendered."""

from __future__ import annotations

from typing import Any

from amplifier_context_core.messages.tokens import approx_token_counter
from amplifier_context_core.rendering.renderer import RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_testing import check_request
from tests.core.drafts import transcript
from tests.messages import Message, user


def renderings(*messages: Message, **settings: Any) -> list[RenderedRound]:
    """Every round rendered, ids claimed in order."""
    settings = {"output_limit": 100_000, **settings}
    renderer = Renderer(approx_token_counter, **settings)
    history = transcript(messages)
    for entry in history.snapshot():
        renderer.register_calls(entry)
    return [renderer.render(round_) for round_ in rounds_of(history.snapshot())]


def shown(*messages: Message, **settings: Any) -> list[Message]:
    return [one.message for rendering in renderings(*messages, **settings) for one in rendering.messages]


def fixes(*messages: Message, **settings: Any) -> list[str]:
    return [fix for rendering in renderings(*messages, **settings) for fix in rendering.fixes]


def valid(*messages: Message, **settings: Any) -> list[Message]:
    """The messages as shown after a prompt, held to every provider's rules."""
    view = shown(user("Start."), *messages, **settings)
    assert check_request(view) == []
    return view[1:]


GIANT = "\n".join(f"row {number:05d}" for number in range(5_000))
