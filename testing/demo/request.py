"""One request of a run, as the probe saw it."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks.message_shapes import Call


@dataclass(slots=True)
class Request:
    """One list of messages that was returned for a request. Token counts are the provider's, as far as it reports any.

    Attributes:
        number: from 1.
        budget: tokens that the request may have; None if the context does not report a budget.
        trigger: tokens above which the context compacts; None if the context does not report it.
        prefix: tokens of the common prefix with the previous request, which a provider can serve from its cache.
        broken: the provider rules that it breaks, one sentence each.
        calls: tool calls of the answer; None until the answer was added.
    """

    number: int
    tokens: int
    budget: int | None
    trigger: int | None
    prefix: int
    broken: list[str]
    calls: list[Call] | None = None
