"""Laws of what a request is sent of a view: whatever request is known, it is what the messages alone give."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.outgoing.bound_thinking import bound_messages
from amplifier_context_core.outgoing.outgoing import Outgoing, outgoing
from amplifier_context_core.outgoing.prefix import RequestPrefix
from amplifier_context_core.rendering.renderer import RenderedMessage
from tests.manager.test_carriers import carrier
from tests.messages import user

PREFIXES = tuple(RequestPrefix.of(("anthropic", model), {}, ()) for model in ("claude-opus-5-5", "claude-fable-5-1"))
KINDS = ("person", "carrier", *PREFIXES)  # a prefix: an answer whose thinking is bound to a request with it
REQUESTS = tuple(
    itertools.product(PREFIXES, (frozenset[int](), frozenset({1}), frozenset({2, 3})))
)  # and what each requires
STEPS = st.one_of(
    st.tuples(st.just("grow"), st.sampled_from(KINDS)),
    st.tuples(st.just("show verbatim"), st.integers(0, 5)),
    st.tuples(st.sampled_from(("ask", "clip")), st.sampled_from(REQUESTS)),
)


def rendered(message: dict[str, Any], seq: int, prefix: str | None = None) -> RenderedMessage:
    tokens = count_message_tokens(message, approx_token_counter)
    return RenderedMessage(message, tokens, seq, "anthropic" if prefix else None, prefix=prefix)


def fresh(messages: list[RenderedMessage], prefix: RequestPrefix, required: frozenset[int]) -> Outgoing:
    return outgoing(messages, prefix, approx_token_counter, required)


class Views:
    """The messages of a view that changes, and requests for them.

    Attributes:
        known: what a request was sent last, of these messages or of earlier ones.
    """

    def __init__(self) -> None:
        self.messages = [rendered(user("Begin."), 1)]
        self.known: Outgoing | None = None

    def new(self, kind: str | RequestPrefix) -> RenderedMessage:
        """Return the next message of the view, of a kind."""
        seq = len(self.messages) + 1
        if isinstance(kind, RequestPrefix):
            bound = bound_messages(self.messages, kind, (), approx_token_counter)
            thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{seq}"}
            answer = {"role": "assistant", "content": [thought, {"type": "text", "text": f"Answer {seq}."}]}
            return rendered(answer, seq, bound[-1].digest.hex())
        return rendered(user(f"Question {seq}.") if kind == "person" else carrier(), seq)

    def take(self, step: str, argument: Any) -> None:
        """Take a step of a session."""
        if step == "grow":
            self.messages = [*self.messages, self.new(argument)]
        elif step == "show verbatim":
            at = argument % len(self.messages)
            self.messages = [*self.messages[:at], rendered(user("Verbatim."), at + 1), *self.messages[at + 1 :]]
        else:
            messages = self.messages[1:] if step == "clip" else self.messages
            self.known = outgoing(messages, argument[0], approx_token_counter, argument[1], self.known)

    def check(self) -> None:
        """Hold what each request has with the known one to what it has without."""
        for prefix, required in REQUESTS:
            sent = outgoing(self.messages, prefix, approx_token_counter, required, self.known)
            alone = fresh(self.messages, prefix, required)
            assert (sent.messages, sent.tokens) == (alone.messages, alone.tokens)
            assert sent.tokens == sum(one.tokens for one in sent.messages)
            assert sent.as_sent(self.messages) == alone.as_sent(self.messages)
            assert sent.replaced_tokens(self.messages[:2]) == alone.replaced_tokens(self.messages[:2])
            assert sent.digest(sent.messages, approx_token_counter) == alone.digest(
                [*alone.messages], approx_token_counter
            )
            assert outgoing(self.messages, prefix, approx_token_counter, required, sent).messages == sent.messages


@example([("grow", PREFIXES[0]), ("ask", REQUESTS[0]), ("grow", "person")])
@example([("grow", "person"), ("grow", "carrier"), ("ask", REQUESTS[1]), ("ask", REQUESTS[2]), ("grow", "person")])
@given(st.lists(STEPS, max_size=8))
def test_what_a_request_is_sent_does_not_depend_on_the_request_that_is_known(steps: list[tuple[str, Any]]) -> None:
    views = Views()
    for step, argument in steps:
        views.take(step, argument)
        views.check()


@given(st.lists(st.sampled_from(KINDS), max_size=6), st.sampled_from(REQUESTS))
def test_what_is_sent_of_the_messages_one_by_one_is_what_is_sent_of_all(
    kinds: list[str | RequestPrefix], request: tuple[RequestPrefix, frozenset[int]]
) -> None:
    """But for the order: a carrier comes before what follows it, though a late result is older."""
    views = Views()
    for kind in kinds:
        views.take("grow", kind)
    sent = fresh(views.messages, *request)
    assert {id(one) for one in sent.as_sent(views.messages)} == {id(one) for one in sent.messages}
