"""The provider of a session in the lab: its name and its prices, for managers that make their views for a provider."""

from __future__ import annotations

from typing import Any

WINDOW = 1_000_000  # tokens: of a model that reads any range in one call
OUTPUT = 5.0  # price of an output token for one of input (Anthropic's and OpenAI's price lists)


def model_info(price: float) -> Any:
    """Return a model whose input costs so much a token, in millionths of a dollar."""
    from amplifier_core.models import ModelInfo, Pricing

    pricing = Pricing(
        input_per_million=price,
        output_per_million=OUTPUT * price,
        cache_read_per_million=0.1 * price,
        cache_write_per_million=1.25 * price,
    )
    return ModelInfo(id="lab", display_name="lab", context_window=WINDOW, max_output_tokens=8_192, pricing=pricing)


class SessionProvider:
    """The provider of a session in the lab: nothing is asked of it but its name and its prices."""

    name = "openai"  # of a vendor whose tokens are counted exactly
    default_model = ""

    async def list_models(self) -> list[Any]:
        """Return the model of the session, at a price of one."""
        return [model_info(1.0)]
