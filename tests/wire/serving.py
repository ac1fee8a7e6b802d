"""Services of both vendors, and providers that call them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from amplifier_core.message_models import ChatRequest, Message, ToolSpec

from amplifier_context_testing.replay.answer_policies import Policy
from amplifier_context_testing.wire.apis import AnthropicService, Model, OpenAIService, Service
from amplifier_context_testing.wire.provider import WireProvider
from amplifier_context_testing.wire.server import serving

APIS = ("openai", "anthropic")
MODEL = Model("wire-1")
HI = {"role": "user", "content": "Hi there."}
READ = ToolSpec(name="read", description="Reads a file.", parameters={"type": "object", "properties": {}})


def service_of(api: str, script: Policy, model: Model = MODEL) -> Service:
    return {"openai": OpenAIService, "anthropic": AnthropicService}[api](script, model)


def ask(*messages: dict[str, Any], **settings: Any) -> ChatRequest:
    return ChatRequest(messages=[Message(**message) for message in messages or (HI,)], **settings)


@dataclass
class Wired:
    service: Service
    provider: WireProvider


@asynccontextmanager
async def wired(api: str, script: Policy, *, model: Model = MODEL, hooks: Any = None) -> AsyncGenerator[Wired]:
    service = service_of(api, script, model)
    async with serving(service) as address:
        provider = WireProvider({"api": api, "base_url": address}, hooks=hooks)
        try:
            yield Wired(service, provider)
        finally:
            await provider.close()
