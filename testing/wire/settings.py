"""The config of a provider that speaks to a server of rules: its mount plan's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT = 600.0  # seconds of a request that names none


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
        given.setdefault("name", given["api"])
        return cls(**given)
