"""The config of a provider that speaks to a server of rules: its mount plan's keys, and its prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..checks.message_shapes import as_mapping


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices in USD for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0

    def cost(self, usage: Any) -> Decimal:
        """Return the price of a response in USD, from its usage as the kernel writes it."""
        read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        fresh = usage.input_tokens - read
        priced = ((fresh, self.input), (read, self.cache_read), (written, self.cache_write))
        total = sum((Decimal(tokens) * Decimal(str(price)) for tokens, price in priced), Decimal(0))
        return (total + Decimal(usage.output_tokens) * Decimal(str(self.output))) / 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The config of a provider; the docstring of `provider.py` says what each key means."""

    api: str
    base_url: str
    api_key: str = "test-key"
    model: str = "wire-1"
    name: str = ""
    context_window: int = 200_000
    max_output_tokens: int = 8_192
    pricing: Pricing | None = None
    timeout: float = 600.0
    compaction: bool = False
    priority: int = 100

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """Read a mount plan's config; `ValueError` names the key that cannot be."""
        given: dict[str, Any] = dict(config)
        if unknown := sorted(set(given) - set(cls.__dataclass_fields__)):
            raise ValueError(f"provider-wire has no config {', '.join(unknown)}")
        if given.get("api") not in ("openai", "anthropic"):
            raise ValueError(f"provider-wire: api is {given.get('api')!r}; it is openai or anthropic")
        if not isinstance(given.get("base_url"), str):
            raise ValueError("provider-wire: base_url is missing; it is an address like http://127.0.0.1:8000")
        if given.get("compaction") and given["api"] != "anthropic":
            raise ValueError("provider-wire: compaction is of anthropic alone")
        prices = as_mapping(given.get("pricing"))
        given["pricing"] = Pricing(**prices) if prices is not None else None
        given.setdefault("name", given["api"])
        return cls(**given)
