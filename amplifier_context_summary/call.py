"""One call of a model through the kernel's provider interface: request, time limit, usage, price.

A call that takes too long is cancelled and left behind, even if the provider does not react to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from amplifier_context_core.economics.budget import model_of
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.usage import COMPACTION_PURPOSE, Usage, usage_of

from .checks import Reply, answer_of
from .limits import Prices, prices_of

_LISTING = 5.0  # seconds that a provider may take to list its models
is_asking: ContextVar[bool] = ContextVar("amplifier_context_summary_is_asking", default=False)
"""True in code that a provider runs for a summary: what it reports is no answer to a request of the session."""

AUTO_CONTINUE = "completion:auto_continue:v1"  # capability of providers that take `request_options`


class CallFailed(Exception):
    """A provider did not answer; the text is the type of the error, never the error's own, which may quote messages.

    Attributes:
        retry_after: seconds that the provider asks to wait; None if it does not say.
        is_free: true if no model read the request: it was not sent, or the provider refused it at once.
    """

    def __init__(self, reason: str, retry_after: float | None = None, *, is_free: bool = False) -> None:
        super().__init__(reason)
        self.retry_after, self.is_free = retry_after, is_free


@dataclass(frozen=True, slots=True)
class Caller:
    """How a model is asked: `model` None for the provider's own, `max_output` in tokens, `timeout` in seconds."""

    provider: Any
    model: str | None
    max_output: int
    timeout: float

    async def ask(self, messages: Sequence[Message]) -> tuple[Reply, Usage | None]:
        """Return the answer to messages, and what it took; raise `CallFailed` if there is none."""
        request = self._request(messages, reasoning_effort="low")
        options = {"request_options": {"auto_continue": False}} if _continues(self.provider) else {}
        response = await limited(lambda: self.provider.complete(request, **options), self.timeout)
        usage = getattr(response, "usage", None)
        return answer_of(response), usage_of(vars(usage) if hasattr(usage, "__dict__") else usage)

    async def compact(
        self, messages: Sequence[Message], tools: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Usage | None]:
        """Return what the provider's own compaction of messages returns, and what it took, or raise `CallFailed`."""
        from amplifier_core import ToolSpec

        specs = [
            ToolSpec(name=name, description=tool.description, parameters=getattr(tool, "input_schema", None) or {})
            for name, tool in tools.items()
        ]
        purpose = {"native_compaction_request_context": True}
        request = self._request(messages, purpose, tools=specs or None)
        result = await limited(lambda: self.provider.compact_context(request), self.timeout)
        given = cast("Mapping[str, Any]", result) if isinstance(result, Mapping) else dict[str, Any]()
        return given, usage_of(given.get("usage"))

    def _request(self, messages: Sequence[Message], metadata: Mapping[str, Any] | None = None, **more: Any) -> Any:
        from amplifier_core import ChatRequest

        given = {
            "messages": list(messages),
            "model": self.model,
            "max_output_tokens": self.max_output,
            "stream": False,
            "timeout": self.timeout,
            "metadata": {"purpose": COMPACTION_PURPOSE, "stream": False, **(metadata or {})},
            **more,
        }
        try:
            return ChatRequest.model_validate(given)
        except ValueError as problem:
            raise CallFailed(type(problem).__name__, is_free=True) from None


async def limited(call: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    """Return what a call of a provider brings within some seconds.

    Raises:
        CallFailed: it raised an error or took too long; then it is cancelled, and left behind if it goes on.
    """

    async def called() -> Any:
        is_asking.set(True)  # in this task's own context
        return await call()

    task = asyncio.create_task(called(), name="amplifier-context-summary-call")
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # so that no loop complains of one left
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done() and not task.get_loop().is_closed():  # a closed loop ends none
            task.cancel()
    if not done:
        raise CallFailed("timeout")
    try:
        return task.result()
    except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - other people's code
        asked = getattr(problem, "retry_after", None)
        retry_after = float(asked) if isinstance(asked, (int, float)) else None
        raise CallFailed(type(problem).__name__, retry_after, is_free=_is_refusal(problem)) from None


def _is_refusal(problem: BaseException) -> bool:
    """True if an error says that no model read the request. After any other the provider may have done the work."""
    from amplifier_core import llm_errors as known

    return isinstance(
        problem,
        known.RateLimitError
        | known.AuthenticationError
        | known.ContextLengthError
        | known.InvalidRequestError
        | known.NotFoundError
        | known.ConfigurationError,
    )


async def listed(provider: Any, model: str | None) -> tuple[Prices | None, int | None]:
    """Return the prices and the window (tokens) that a provider lists for a model, its own or only one by default."""
    try:
        models: list[Any] = list(await limited(lambda: provider.list_models(), _LISTING))
    except Exception:  # noqa: BLE001 - other people's code; not every provider lists its models
        models = []
    named = [one for one in models if getattr(one, "id", None) == (model or model_of(provider))]
    found = next(iter(named or (models if len(models) == 1 else ())), None)
    window: object = getattr(found, "context_window", None)
    return prices_of(getattr(found, "pricing", None)), window if isinstance(window, int) and window > 0 else None


def _continues(provider: Any) -> bool:
    """True if a provider says that it continues an answer which was cut off."""
    try:
        capabilities: object = provider.get_info().capabilities
        return isinstance(capabilities, list) and AUTO_CONTINUE in capabilities
    except Exception:  # noqa: BLE001 - other people's code; not every provider has capabilities
        return False
