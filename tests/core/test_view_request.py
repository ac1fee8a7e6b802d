"""What is known of a request before its view is selected."""

from __future__ import annotations

from amplifier_context_core import HeuristicTokenCounter, TokenCounter, approx_token_counter
from amplifier_context_core.config import Config
from amplifier_context_core.rendering.system_prompt import rendered_instruction
from amplifier_context_core.view.meter import Meter
from amplifier_context_core.view.prefix import RequestPrefix
from amplifier_context_core.view.trigger import token_limits
from amplifier_context_core.view.view_request import ViewRequest
from tests.messages import Message


def request_with(system: Message, appended: Message, counter: TokenCounter) -> ViewRequest:
    prompt, listed = (tuple(rendered_instruction(one, counter)) for one in (system, appended))
    limits = token_limits(Config(), Meter(), 4_000, ("", ""))
    return ViewRequest(limits, RequestPrefix.of(("", ""), {}, prompt), prompt, counter, appended=listed)


def test_what_is_sent_beside_a_view_is_counted_by_the_counter_of_the_request() -> None:
    system, appended = {"role": "system", "content": "Be brief. " * 40}, {"role": "system", "content": "- item " * 70}
    twice = HeuristicTokenCounter(2.0)
    request = request_with(system, appended, approx_token_counter)
    assert request.counted_by(twice) == request_with(system, appended, twice)
    assert request.counted_by(twice).system_tokens > 1.8 * request.system_tokens > 300
