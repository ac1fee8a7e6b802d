"""What summaries may cost: calls and tokens in a time window, back-off after failures, and a share of the money.

Costs are counted in the price of one fresh input token of the session's model. Where both providers name prices, those
of the summary's model are converted to this unit; else relative prices serve for both. Of the session only the input
counts, of a summary call input and output.

The limits are saved with the session: a host that opens it for each turn has no more calls than one that keeps it open.

Pure: no I/O; the caller gives the time (seconds since 1970).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from amplifier_context_core.economics.budget import price_in
from amplifier_context_core.messages.usage import Usage

from .config import SummaryConfig

WINDOW = 600.0  # seconds: ten minutes, as lossless-claw limits its calls
_FIRST_BACK_OFF = 30.0  # seconds after the first failure; it doubles with each further one
_LONGEST_BACK_OFF = 3_600.0
_LONGEST_RETRY_AFTER = 86_400.0  # seconds a provider may ask for
_SPEND = 0.12  # of what the session's input has cost, for a model at its price
# Prices of tokens relative to a fresh input token, where a provider names none (docs/reports/evaluation.md).
_READ, _WRITE, _OUTPUT = 0.1, 1.25, 5.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one token each; by default relative to a fresh one of the input."""

    fresh: float = 1.0
    read: float = _READ
    write: float = _WRITE
    output: float = _OUTPUT

    def of_input(self, usage: Usage) -> float:
        """Return the price of what a response read."""
        read = min(usage.cache_read_tokens, usage.input_tokens)
        return (usage.input_tokens - read) * self.fresh + read * self.read + usage.cache_write_tokens * self.write

    def of(self, usage: Usage) -> float:
        """Return the price of a response."""
        return self.of_input(usage) + usage.output_tokens * self.output


def prices_of(pricing: object) -> Prices | None:
    """Return the prices in a kernel's `Pricing`; None if there is none that makes sense."""
    fresh, read, write, output = (price_in(pricing, kind) for kind in ("input", "cache_read", "cache_write", "output"))
    if not fresh or output is None:
        return None
    return Prices(fresh, fresh * _READ if read is None else read, fresh * _WRITE if write is None else write, output)


_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


@dataclass
class Limits:
    """What was spent in one session, and whether more may be.

    Attributes:
        failures: in a row.
        recent: time and input tokens of the calls in `WINDOW`.
        answered: tokens of the last answer: a model may write more than it was asked for.
    """

    session_cost: _Amount = 0.0
    summary_cost: _Amount = 0.0
    calls: _Count = 0
    failures: _Count = 0
    recent: tuple[tuple[_Amount, _Count], ...] = ()
    not_before: _Amount = 0.0
    answered: _Count = 0

    def left(self, config: SummaryConfig, price: float, *, by_hand: bool) -> float:
        """Return the money that may be spent now on a model whose input has a price relative to the session's model.

        By default a cheaper one lowers the bill. A first call for a compaction by hand is not bounded.
        """
        share = _SPEND * min(1.0, price) if config.summary_spend is None else config.summary_spend
        return math.inf if by_hand and not self.calls else share * self.session_cost - self.summary_cost

    def refusal(self, config: SummaryConfig, now: float, tokens: int) -> str:
        """Return the key of the config or the wait that forbids a call now, with about so many tokens of input.

        It is empty if the call may be made, for the money that is `left`.
        """
        self.recent = tuple(one for one in self.recent if now - WINDOW < one[0] <= now)
        if self.waits(now):
            return "back-off after a failure"
        if len(self.recent) >= config.max_summary_calls:
            return "max_summary_calls"
        used = sum(tokens for _, tokens in self.recent)
        is_too_much = self.recent and used + tokens + config.summary_output > config.max_summary_tokens
        return "max_summary_tokens" if is_too_much else ""

    def begin(self, now: float, tokens: int) -> None:
        """Note a call that is made now, with the tokens of its input."""
        self.calls += 1
        self.recent = (*self.recent, (now, tokens))

    def succeeded(self) -> None:
        """Note a call that gave a text."""
        self.failures = 0
        self.not_before = 0.0

    def failed(self, now: float, retry_after: float | None = None) -> None:
        """Note a call that failed: the next one waits, twice as long as the last time, or as the provider asks."""
        self.failures += 1
        wait = min(_FIRST_BACK_OFF * 2.0 ** min(self.failures - 1, 20), _LONGEST_BACK_OFF)
        if retry_after is not None and 0 < retry_after < _LONGEST_RETRY_AFTER:
            wait = max(wait, retry_after)
        self.not_before = now + max(wait, self.waits(now))

    def waits(self, now: float) -> float:
        """Return for how many seconds no call is made. More than a day is none: the clock was set back."""
        wait = self.not_before - now
        return wait if 0 < wait <= _LONGEST_RETRY_AFTER else 0.0

    def dump(self) -> dict[str, Any]:
        """Return what was spent and what is waited for as JSON, for the session state."""
        return _ADAPTER.dump_python(self, mode="json")

    def restore(self, saved: object) -> None:
        """Continue from what `dump` returned; from nothing if it cannot be read."""
        with suppress(ValidationError):
            vars(self).update(vars(_ADAPTER.validate_python(saved)))


_ADAPTER = TypeAdapter(Limits)
