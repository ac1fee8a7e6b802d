"""Laws of what a request is sent of a view."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.outgoing.outgoing import outgoing
from amplifier_context_core.outgoing.prefix import RequestPrefix, request_digest
from amplifier_context_core.rendering.renderer import RenderedMessage
from tests.manager.test_carriers import carrier
from tests.messages import user

PREFIXES = tuple(RequestPrefix.of(("anthropic", model), {}, ()) for model in ("claude-opus-5-5", "claude-fable-5-1"))
KINDS = ("person", "carrier", *PREFIXES)  # a prefix: an answer whose thinking is bound to a request with it
REQUESTS = tuple(
    itertools.product(PREFIXES, (frozenset[int](), frozenset({1}), frozenset({2, 3})))
)  # and what each requires


def rendered(message: dict[str, Any], seq: int, prefix: str | None = None) -> RenderedMessage:
    tokens = count_message_tokens(message, approx_token_counter)
    return RenderedMessage(message, tokens, seq, "anthropic" if prefix else None, prefix=prefix)


def grown(kinds: list[str | RequestPrefix]) -> list[RenderedMessage]:
    """Return the messages of a view: the first, and one of each kind."""
    messages = [rendered(user("Begin."), 1)]
    for seq, kind in enumerate(kinds, start=2):
        if isinstance(kind, RequestPrefix):
            sent = outgoing(messages, kind, approx_token_counter).messages
            thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{seq}"}
            answer = {"role": "assistant", "content": [thought, {"type": "text", "text": f"Answer {seq}."}]}
            messages.append(rendered(answer, seq, request_digest(sent, kind)))
        else:
            messages.append(rendered(user(f"Question {seq}.") if kind == "person" else carrier(), seq))
    return messages


@given(st.lists(st.sampled_from(KINDS), max_size=6), st.sampled_from(REQUESTS))
def test_what_is_sent_of_the_messages_one_by_one_is_what_is_sent_of_all(
    kinds: list[str | RequestPrefix], request: tuple[RequestPrefix, frozenset[int]]
) -> None:
    """But for the order: a carrier comes before what follows it, though a late result is older."""
    messages = grown(kinds)
    sent = outgoing(messages, request[0], approx_token_counter, request[1])
    assert {id(one) for one in sent.as_sent(messages)} == {id(one) for one in sent.messages}
    assert sent.tokens == sum(one.tokens for one in sent.messages)


@given(st.lists(st.sampled_from(KINDS), max_size=6), st.sampled_from(REQUESTS))
def test_what_is_sent_is_sent_whole_again(
    kinds: list[str | RequestPrefix], request: tuple[RequestPrefix, frozenset[int]]
) -> None:
    prefix, required = request
    sent = outgoing(grown(kinds), prefix, approx_token_counter, required).messages
    assert outgoing(sent, prefix, approx_token_counter, required).messages == sent
