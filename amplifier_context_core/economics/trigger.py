"""When a view is compacted and how far: a cost policy over token counts.

A compaction gives up a cached prefix and writes it again. Without a compaction, each request reads the grown tail from
the cache once more. With ``cadence: auto`` the threshold is the break-even point of the two costs, as in the ski-rental
problem. With ``cadence: fixed`` it is a share of the budget. After a pause longer than the provider's cache lives the
prefix is written again in any case, and a compaction that is nearly due is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..config import Config
from .cold_cache import default_ttl, rewrites_all
from .meter import USUAL_PRICES, Key, Meter, Prices, Units

_MIN_TARGET_RATIO = 0.8  # of the target; lower, and chapters would be most of the view
_MIN_FREED_SHARE = 0.05  # of the capacity: what a compaction must free to be worth a new prefix, by default
_WHOLE_TARGET_RATIO = 0.8  # of the target, where a compaction writes all of it; docs/caching.md
_NEARLY_DUE = 0.5  # of the growth up to the threshold; docs/reports/evaluation.md has the experiment
_SAME_CAPACITY = 0.02  # of a capacity: how far another may be from it for a back-off to apply


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The token limits of one request, as this package counts them but for the budgets."""

    budget: int  # as the caller asked for, in the provider's tokens
    accepted: int  # the budget, or less where the provider refused a smaller request, in the provider's tokens
    units: Units  # the conversion to the provider's tokens that the other figures were made with
    capacity: int  # the view's largest size
    threshold: int  # the size above which the view is compacted
    target: int  # the size that a compaction aims at
    min_freed: int  # what a compaction must free
    cache_ttl: int = 0  # seconds after its last use that the provider forgets a cached prefix; 0 for never
    prices: Prices = USUAL_PRICES
    rewrites_all: bool = False  # once its prefix changed, the provider writes all of a request again

    def reported(self, counted: int) -> int:
        """Return a limit on the view in the provider's tokens, at most the budget: tool definitions may outgrow it."""
        return min(self.units.limit(counted), self.accepted)


def token_limits(
    config: Config, meter: Meter, budget: int, key: Key, *, accepted: int | None = None, units: Units | None = None
) -> TokenLimits:
    """`budget` and `accepted` are in the provider's tokens. The meter, as it is now, says what is not given."""
    accepted = meter.accepted(budget, key) if accepted is None else accepted
    units = units or meter.units(key)
    capacity, is_whole = units.capacity(accepted), rewrites_all(key)
    threshold = int(capacity * config.compact_threshold) if config.auto_compact else capacity
    freed = config.clear_at_least if config.clear_at_least is not None else int(capacity * _MIN_FREED_SHARE)
    return TokenLimits(
        budget,
        accepted,
        units,
        capacity,
        max(1, threshold),
        target=max(1, int(capacity * config.target_usage * (_WHOLE_TARGET_RATIO if is_whole else 1))),
        min_freed=freed,
        cache_ttl=default_ttl(key) if config.cache_ttl is None else config.cache_ttl,
        prices=meter.prices(key),
        rewrites_all=is_whole,
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """What came to a view since its checkpoint, in counted tokens."""

    checkpoint: int
    rewritten: int  # of that, what the next compaction writes again: the newest chapter and what follows it
    tail: int  # size of what came after the checkpoint, at least 1
    responses: int


def compaction_threshold(growth: Growth | None, limits: TokenLimits, system_tokens: int, *, adaptive: bool) -> int:
    """Return the size of a view, its system prompt included, above which it is compacted.

    The break-even point is base + sqrt(2 * rewrite price / read price * rewritten * growth per request). It is at least
    `min_freed` above the base and at most the configured threshold. Here that threshold is a share of what the system
    prompt leaves, so that a long prompt does not make compactions frequent. `growth` is None without a checkpoint or a
    tail, when there is nothing to go by.
    """
    if not adaptive:
        return limits.threshold
    beside = max(0.0, 1 - system_tokens / limits.capacity)
    most = limits.capacity - int((limits.capacity - limits.threshold) * beside)
    if growth is None:
        return most
    base = system_tokens + growth.checkpoint
    per_request = growth.tail / max(1, growth.responses)
    rewritten = growth.checkpoint if limits.rewrites_all else growth.rewritten
    carried = math.sqrt(2 * limits.prices.rewrite / limits.prices.read * rewritten * per_request)
    return min(most, max(base + limits.min_freed, int(base + carried)))


def cold_threshold(threshold: int, base: int) -> int:
    """Return the size above which a view is compacted at a moment when its prefix is written again in any case.

    A compaction gives up nothing then, and all that it frees need not be written. It is made if it is nearly due. Made
    at any size, it would fold what the agent is still at work with. `base` is the size of system prompt and checkpoint.
    """
    return min(threshold, base + int(_NEARLY_DUE * max(0, threshold - base)))


def recall_room(limits: TokenLimits, share: float) -> int:
    """Return the tokens that recalls may bring between two compactions; `share` is `recall_share`."""
    return int(max(0, limits.threshold - limits.target) * share)


def compaction_target(threshold: int, limits: TokenLimits) -> int:
    """Return less than `limits.target` if the compaction is due before its threshold."""
    early = threshold / limits.threshold
    return max(1, int(limits.target * min(max(early, _MIN_TARGET_RATIO), 1)))


@dataclass(frozen=True, slots=True)
class CompactionBackoff:
    """An attempt to compact a view, kept so that the attempt is not repeated before something changed."""

    capacity: int  # the view's largest size then (tokens)
    retry_at_tokens: int  # the size that makes another attempt worth it
    compactable_count: int  # entries that a checkpoint could cover then
    infeasible: bool  # the protected rounds alone exceed the capacity: more attempts would not help

    def postpones(self, tokens: int, compactable_count: int, capacity: int) -> bool:
        """True if another attempt is not worth it yet for a view of so many tokens, its system prompt included.

        If open rounds alone put the view above its capacity, the next attempt follows as soon as another round closes.
        """
        # The meter changes capacities a little all the time.
        if abs(capacity - self.capacity) > _SAME_CAPACITY * capacity:
            return False
        if tokens > capacity and not self.infeasible:
            return compactable_count <= self.compactable_count
        return tokens < self.retry_at_tokens


def back_off(tokens: int, compactable_count: int, limits: TokenLimits, *, infeasible: bool) -> CompactionBackoff:
    """Let no other attempt be made before the view has grown by what a compaction must free.

    `tokens` is the size of the view with its system prompt, after the attempt.
    """
    return CompactionBackoff(limits.capacity, tokens + max(1, limits.min_freed), compactable_count, infeasible)
