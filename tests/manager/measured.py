"""Requests that a provider counts before they are sent: the count, and the question of a loop."""

from collections.abc import Sequence
from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_core.view.resume import collect_state
from amplifier_context_core.view.session_state import dump
from tests.managers import valid
from tests.messages import Message, size

BUDGET = 4_000
OVERHEAD = 700  # tokens of tool definitions, which only the provider sees
RESERVE = 100  # tokens that the provider keeps free


class Counting:
    """A provider's count of whole requests, as a loop asks for it; it disagrees with the manager's own counter.

    Attributes:
        views: what was counted, in order.
        limit: tokens that the provider takes.
        unavailable: numbers of the counts (from 1) without an answer.
        fails: the exception of the next count.
    """

    def __init__(
        self,
        *,
        ratio: float = 1.3,
        overhead: int = OVERHEAD,
        reserve: int = RESERVE,
        limit: int = 100_000,
        unavailable: Sequence[int] = (),
    ) -> None:
        self.views: list[list[Message]] = []
        self.ratio, self.overhead, self.reserve = ratio, overhead, reserve
        self.limit = limit
        self.unavailable = frozenset(unavailable)
        self.fails: BaseException | None = None

    def tokens(self, view: Sequence[Message]) -> int:
        return self.overhead + int(self.ratio * size(view))

    async def __call__(self, view: list[Message]) -> dict[str, Any]:
        valid(view)
        self.views.append(view)
        if self.fails is not None:
            raise self.fails
        decision: dict[str, Any] | None = None
        if len(self.views) not in self.unavailable:
            count = self.tokens(view)
            decision = {
                "estimated_input_tokens": count + self.reserve,
                "input_limit_tokens": self.limit,
                "measurement": {"kind": "provider_count", "source": "test", "input_tokens": count},
            }
        return {"dispatch": object(), "budget_decision": decision}


async def measure(manager: ContextManager, count: Counting, **more: Any) -> dict[str, Any]:
    result = await manager.measured_request_view(provider=None, count_view=count, **more)
    assert result["count_calls"] == len(count.views)
    assert result["base_view"] is count.views[-1]
    return result


async def state_of(manager: ContextManager) -> bytes:
    """All that is kept beside the history, as it would be saved."""
    counter = await manager.token_counter()
    return dump(collect_state(manager.history, manager.compactor, counter, {}))


def settings(**more: Any) -> dict[str, Any]:
    return {"max_tokens": BUDGET, "cadence": "fixed", "compact_threshold": 0.8, **more}
