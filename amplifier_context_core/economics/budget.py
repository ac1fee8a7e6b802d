"""The budget of one request, and where it comes from.

It is the caller's `token_budget`, else the provider's window less what its answer needs, else `max_tokens`. A
`max_tokens` that the user set caps it. A provider may lack a method, raise, or return a value that makes no sense; then
the next source is used (docs/kernel.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..config import Config
from ..errors import ConfigError
from .meter import Prices

_MAX_WRITE_PRICE = 4  # plain tokens; the dearest on a price list is 2, for an hour (docs/caching.md)
_MIN_READ_PRICE = 0.001  # plain tokens; far below any price list
_LARGEST_PRICE = 1e9  # of a million tokens, in any currency
_LARGEST_WINDOW = 100_000_000  # tokens; a larger claim is nonsense


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that one request may have."""

    tokens: int  # at least 1
    capped_from: int | None = None  # the larger figure that `max_tokens` capped; None when it capped nothing


def budget_for(config: Config, token_budget: int | None = None, provider: object = None) -> Budget:
    """`token_budget`: what the caller of the request asked for; None to derive it; `provider`: the kernel's provider,
    or any object; its window is read if it has one. Raises `ConfigError`: `token_budget` is not a whole number of at
    least 1 token.
    """
    if token_budget is not None:
        if isinstance(token_budget, bool) or not isinstance(token_budget, int) or token_budget < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("token_budget", f"must be at least 1 token, got {token_budget!r}")
        tokens = token_budget
    else:
        window = provider_window(provider, config.output_reserve_fraction, config.safety_margin)
        tokens = window or config.max_tokens
    is_capped = "max_tokens" in config.model_fields_set and tokens > config.max_tokens
    return Budget(config.max_tokens, capped_from=tokens) if is_capped else Budget(tokens)


def provider_window(provider: object, output_reserve_fraction: float, safety_margin: int) -> int | None:
    """Return the input tokens that the provider's model takes; None if it names no window that makes sense."""
    claimed = _claimed(provider)
    if claimed is None:
        return None
    window, answer = claimed
    tokens = int(window - output_reserve_fraction * answer - safety_margin)
    # A small model whose longest answer is its whole window: half for each is the usual split.
    return tokens if tokens > 0 else max(1, window // 2)


def context_window(provider: object) -> int | None:
    """Return the whole window of the provider's model, answer included; None if it names none."""
    claimed = _claimed(provider)
    return claimed[0] if claimed else None


def model_of(provider: object) -> str | None:
    defaults = _defaults(provider)
    for source, name in ((defaults, "model"), (defaults, "default_model"), (provider, "default_model")):
        model = _field(source, name)
        if isinstance(model, str) and model:
            return model
    return None


def name_of(provider: object) -> str:
    name = _field(provider, "name")
    return name if isinstance(name, str) else ""


def prices_of(provider: object) -> Prices | None:
    """Return what a provider's model charges for cached tokens; None where it names no prices that make sense.

    They are read from `pricing` of the kernel's `ModelInfo`, per million tokens: `input_per_million`,
    `cache_read_per_million`, `cache_write_per_million`. Without a price for writes, writing costs nothing extra.
    Without a price for reads the kernel knows of no cache.
    """
    pricing = _field(_call(provider, "get_model_info"), "pricing")
    if pricing is None:
        return None
    plain, read, write = (price_in(pricing, kind) for kind in ("input", "cache_read", "cache_write"))
    if not plain or read is None:
        return None
    prices = Prices(read / plain, (plain if write is None else write) / plain)
    return prices if _MIN_READ_PRICE <= prices.read <= 1 <= prices.write <= _MAX_WRITE_PRICE else None


def price_in(pricing: object, kind: str) -> float | None:
    """Return a price of a million tokens; None where the kernel's `Pricing` names none that makes sense.

    `kind` is `input`, `output`, `cache_read` or `cache_write`.
    """
    return _number(_field(pricing, f"{kind}_per_million"), _LARGEST_PRICE)


def _claimed(provider: object) -> tuple[int, int] | None:
    """Return the window and the longest answer of the provider's model, 0 for an answer that it does not name."""
    for claims in (_call(provider, "get_model_info"), _defaults(provider)):
        named = (_number(_field(claims, name), _LARGEST_WINDOW) for name in ("context_window", "max_output_tokens"))
        window, answer = (int(tokens or 0) for tokens in named)
        if window:
            return window, answer
    return None


def _defaults(provider: object) -> object:
    return _field(_call(provider, "get_info"), "defaults")


def _field(thing: object, name: str) -> Any:
    """Return an entry of a mapping, or an attribute; None if there is none, or if reading it raises."""
    try:
        return cast("Mapping[str, Any]", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a provider's fault must not stop the request (docs/kernel.md)
        return None


def _call(provider: object, method: str) -> object:
    function = _field(provider, method)
    if not callable(function):
        return None
    try:
        answer = function()
    except Exception:  # noqa: BLE001 - a provider's fault must not stop the request (docs/kernel.md)
        return None
    if inspect.iscoroutine(answer):
        answer.close()
        return None
    return answer


def _number(value: object, most: float) -> float | None:
    """Return a number from 0 to `most`; None for anything else, also for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= most else None
