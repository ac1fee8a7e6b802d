"""Laws of the messages of a view as requests have them: whatever came before, they are those of the present view."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.prefix import RequestPrefix, bound_messages
from amplifier_context_core.view.request_messages import RequestMessages
from tests.manager.test_carriers import carrier
from tests.messages import user

PREFIXES = tuple(RequestPrefix.of(("anthropic", model), {}, ()) for model in ("claude-opus-5-5", "claude-fable-5-1"))
KINDS = ("person", "carrier", *PREFIXES)  # a prefix: an answer whose thinking is bound to a request with it
REQUESTS = tuple(
    itertools.product(PREFIXES, (frozenset[int](), frozenset({1}), frozenset({2, 3})))
)  # and what each requires
LARGE = "word " * 13_000  # its hash is made in a thread: other tasks run meanwhile
STEPS = st.one_of(
    st.tuples(st.sampled_from(("grow", "meanwhile")), st.sampled_from(KINDS)),
    st.tuples(st.just("show verbatim"), st.integers(0, 5)),
    st.tuples(st.sampled_from(("bind", "clip", "cancel")), st.sampled_from(REQUESTS)),
)


def rendered(message: dict[str, Any], seq: int, prefix: str | None = None) -> RenderedMessage:
    tokens = count_message_tokens(message, approx_token_counter)
    return RenderedMessage(message, tokens, seq, "anthropic" if prefix else None, prefix=prefix)


class Views:
    """The messages of a view that changes, and requests for them."""

    def __init__(self) -> None:
        self.request = RequestMessages(approx_token_counter)
        self.messages = [rendered(user(LARGE), 1)]

    async def new(self, kind: str | RequestPrefix) -> RenderedMessage:
        """Return the next message of the view, of a kind."""
        seq = len(self.messages) + 1
        if isinstance(kind, RequestPrefix):
            bound = await bound_messages(self.messages, kind, (), approx_token_counter)
            thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{seq}"}
            answer = {"role": "assistant", "content": [thought, {"type": "text", "text": LARGE}]}
            return rendered(answer, seq, bound[-1].digest.hex())
        return rendered(user(f"{seq} {LARGE}") if kind == "person" else carrier(), seq)

    def grow(self, new: RenderedMessage) -> None:
        """Take in a message."""
        self.request.change(len(self.messages))
        self.messages = [*self.messages, new]

    async def bind(self, prefix: RequestPrefix, required: frozenset[int]) -> None:
        await self.request.bind(self.messages, (), prefix, required)

    async def take(self, step: str, argument: Any) -> None:
        """Take a step of a session."""
        if step == "grow":
            self.grow(await self.new(argument))
        elif step == "meanwhile":
            new = await self.new(argument)
            binding = asyncio.create_task(self.bind(*REQUESTS[0]))
            await asyncio.sleep(0)
            self.grow(new)
            await binding
        elif step == "show verbatim":
            at = argument % len(self.messages)
            self.request.change(at)
            self.messages = [*self.messages[:at], rendered(user("Verbatim."), at + 1), *self.messages[at + 1 :]]
        elif step == "bind":
            await self.bind(*argument)
        elif step == "clip":
            await self.request.clipped(self.messages[1:], *argument)
        else:
            binding = asyncio.create_task(self.bind(*argument))
            await asyncio.sleep(0)
            binding.cancel()
            await asyncio.gather(binding, return_exceptions=True)

    async def check(self) -> None:
        """Hold what the last request has, if it is current, and what the next ones have to those of a new object."""
        if self.request.sent is not None:
            allowed = [await self.fresh(*one) for one in REQUESTS]
            assert (self.request.sent, self.request.left_out) in [(one.sent, one.left_out) for one in allowed]
        for prefix, required in REQUESTS:
            await self.bind(prefix, required)
            assert self.request.is_for(prefix, required)
            fresh = await self.fresh(prefix, required)
            assert (self.request.sent, self.request.left_out) == (fresh.sent, fresh.left_out)
            assert self.request.as_sent(self.messages) == fresh.as_sent(self.messages)

    async def fresh(self, prefix: RequestPrefix, required: frozenset[int]) -> RequestMessages:
        fresh = RequestMessages(approx_token_counter)
        await fresh.bind(self.messages, (), prefix, required)
        return fresh


@example([("grow", PREFIXES[0]), ("meanwhile", "person")])
@example([("grow", "person"), ("grow", "carrier"), ("bind", REQUESTS[1]), ("bind", REQUESTS[2]), ("grow", "person")])
@settings(max_examples=60)
@given(st.lists(STEPS, max_size=6))
def test_a_request_has_the_messages_of_the_present_view(steps: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        views = Views()
        for step, argument in steps:
            await views.take(step, argument)
        await views.check()

    asyncio.run(run())
