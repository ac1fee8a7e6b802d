"""Amplifier module `loop-replay`: an orchestrator, small but honest.

It does what Amplifier's own loops do to a context manager, in the same order and with the same message shapes, and
nothing else: prompt → request → tools → request → … → answer. What these loops do differently is the
`style`. In a mount plan:

    session: {orchestrator: {module: loop-replay, config: {style: streaming}}}

Config, all optional:

| key | meaning |
| --- | --- |
| `style` | `basic` or `streaming`, see `LoopConfig` |
| `retry_on_overflow` | after a ContextLengthError ask once more, for a smaller view (false) |
| `overflow_share` | share of the window the smaller view may fill (0.75) |
| `closing_message` | an assistant message stored after a cancellation, as some loops do (none) |
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from ..checks.message_shapes import Message, as_list, as_mapping, well_formed

__amplifier_module_type__ = "orchestrator"

Content: TypeAlias = str | list[Message]
"""A result: a text, or the blocks of a rich one."""

_POLL = 0.02  # seconds between looks at the cancellation token, which cannot be awaited


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    """Mount a `ReplayLoop` at `orchestrator`.

    Raises:
        TypeError: an unknown key in the config.
        ValueError: an impossible value.
    """
    await coordinator.mount("orchestrator", ReplayLoop(LoopConfig(**(config or {}))))


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """Settings of the loop; the module's docstring says what they mean.

    Attributes:
        style: `basic` stores results without the tool's name and emits `provider:response` and `prompt:complete`;
            `streaming` stores the name, repeats the first thinking block under the key `thinking_block`, emits
            `execution:start` and `execution:end`, and no `provider:response`. So do loop-basic and loop-streaming.
    """

    style: Literal["basic", "streaming"] = "basic"
    retry_on_overflow: bool = False
    overflow_share: float = 0.75
    closing_message: str | None = None

    def __post_init__(self) -> None:
        if self.style not in ("basic", "streaming"):
            raise ValueError(f"loop-replay: style is {self.style!r}; it is basic or streaming")
        if not 0 < self.overflow_share <= 1:
            raise ValueError(f"loop-replay: overflow_share is {self.overflow_share!r}; it is above 0 and at most 1")


class ReplayLoop:
    """The orchestrator: `execute` runs one prompt to its answer."""

    def __init__(self, config: LoopConfig | None = None) -> None:
        self.config = config or LoopConfig()

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: Any,
        coordinator: Any = None,
        **kwargs: Any,
    ) -> str:
        """Run one prompt.

        Returns:
            The text of the final answer; the text so far when cancelled; the reason when a hook denied.

        Raises:
            RuntimeError: there is no provider.
        """
        if not providers:
            raise RuntimeError("no provider is mounted")
        name, provider = min(providers.items(), key=lambda item: _priority(item[1]))
        return await _Turn(self.config, context, name, provider, tools, hooks, coordinator).run(prompt)


class _Denied(Exception):
    """A hook denied: no error but a decision, on its way to the caller. The turn ends with its reason."""


@dataclass(slots=True)
class _Turn:
    """One prompt on its way to an answer; `injected` are ephemeral injections for the next request."""

    config: LoopConfig
    context: Any
    provider_name: str
    provider: Any
    tools: dict[str, Any]
    hooks: Any
    coordinator: Any
    iteration: int = 0
    text: str = ""
    status: str = "incomplete"
    injected: list[Any] = field(default_factory=list[Any])

    @property
    def streaming(self) -> bool:
        return self.config.style == "streaming"

    async def run(self, prompt: str) -> str:
        try:
            await self._open(prompt)
            await self._iterate()
        except _Denied as denial:
            self.text = f"Denied by a hook: {denial}"
            self.status = "denied"
        except asyncio.CancelledError:
            self.status = "cancelled"
            raise
        except Exception:
            self.status = "error"
            raise
        finally:
            await self._close()
        return self.text

    async def _open(self, prompt: str) -> None:
        result = await self._ask("prompt:submit", {"prompt": prompt})
        self.injected += _ephemeral(result)
        if self.streaming:
            await self.hooks.emit("execution:start", {"prompt": prompt})
        await self.context.add_message({"role": "user", "content": prompt})

    async def _close(self) -> None:
        if self.streaming:
            await self.hooks.emit("execution:end", {"status": self.status})
        elif self.status == "success":
            await self.hooks.emit("prompt:complete", {"response_preview": self.text[:200], "length": len(self.text)})
        await self.hooks.emit(
            "orchestrator:complete",
            {"orchestrator": "loop-replay", "turn_count": self.iteration, "status": self.status},
        )

    async def _iterate(self) -> None:
        while not await self._stopped():
            self.iteration += 1
            response = await self._request()
            calls = self._calls(response)
            if not calls:
                await self._store_answer(response)
                return
            await self._store(response, calls)
            if not await self._run_tools(calls):
                return

    # --- one request --------------------------------------------------------------------------------------------------

    async def _request(self) -> Any:
        announced = {"provider": self.provider_name, "iteration": self.iteration}
        result = await self._ask("provider:request", announced)
        injections = [*_ephemeral(result), *self.injected]
        self.injected = []
        view = await self.context.get_messages_for_request(provider=self.provider)
        try:
            response = await self._complete(view, injections)
        except Exception as problem:
            if not (self.config.retry_on_overflow and _is_overflow(problem)):
                raise
            budget = self._smaller_budget(view)
            view = await self.context.get_messages_for_request(token_budget=budget, provider=self.provider)
            response = await self._complete(view, injections)
        if not self.streaming:
            await self.hooks.emit(
                "provider:response",
                {
                    "provider": self.provider_name,
                    "usage": getattr(response, "usage", None),
                    "tool_calls": bool(self._calls(response)),
                },
            )
        return response

    async def _complete(self, view: list[Message], injections: list[Any]) -> Any:
        try:
            return await self.provider.complete(self._as_request(view, injections))
        except Exception as problem:
            await self._announce_error(problem)
            raise

    def _as_request(self, view: list[Message], injections: list[Any]) -> Any:
        from amplifier_core.message_models import ChatRequest, Message, ToolSpec

        messages = list(view)
        for injection in injections:
            _inject(messages, injection)
        specs = [
            ToolSpec(name=tool.name, description=tool.description, parameters=getattr(tool, "input_schema", {}))
            for tool in self.tools.values()
        ]
        return ChatRequest(messages=[Message(**message) for message in messages], tools=specs or None)

    async def _announce_error(self, problem: Exception) -> None:
        from amplifier_core.llm_errors import LLMError

        data: dict[str, Any] = {
            "provider": self.provider_name,
            "error": {"type": type(problem).__name__, "msg": str(problem)},
        }
        if isinstance(problem, LLMError):
            data |= {"retryable": problem.retryable, "status_code": problem.status_code}
        await self.hooks.emit("provider:error", data)

    def _smaller_budget(self, view: list[Message]) -> int:
        """Tokens for the second attempt: a share of what the window leaves after the answer, or of the view itself."""
        try:
            defaults: Any = self.provider.get_info().defaults
            window = int(defaults["context_window"]) - int(defaults.get("max_output_tokens") or 0)
        except (AttributeError, KeyError, TypeError, ValueError):
            window = sum(len(str(message)) for message in view) // 4
        return max(1, int(window * self.config.overflow_share))

    # --- what is stored -----------------------------------------------------------------------------------------------

    async def _store(self, response: Any, calls: list[Any]) -> None:
        """The assistant's message with its calls, stored before any of them runs."""
        message = self._message(response)
        message["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
        await self._add_with_state(message, response)

    async def _store_answer(self, response: Any) -> None:
        """The final answer. Without any content loop-streaming stores an empty message; loop-basic stores none and
        asks again, without end, which this loop spares its users."""
        self.text = _text(response)
        self.status = "success" if response.content else "incomplete"
        if response.content or self.streaming:
            await self._add_with_state(self._message(response), response)

    def _message(self, response: Any) -> Message:
        content: Any = response.content
        blocks = as_list(content)
        if blocks:
            stored = [_dumped(block) for block in blocks]
            message: Message = {"role": "assistant", "content": stored}
            thought = next((block for block in stored if block.get("type") == "thinking"), None)
            if self.streaming and thought is not None:
                message["thinking_block"] = dict(thought)
            return message
        return {"role": "assistant", "content": content or ""}

    async def _add_with_state(self, message: Message, response: Any) -> None:
        if metadata := getattr(response, "metadata", None):
            message["metadata"] = metadata
        await self.context.add_message(message)

    # --- tools and cancellation ---------------------------------------------------------------------------------------

    def _calls(self, response: Any) -> list[Any]:
        return list((self.provider.parse_tool_calls(response) if self.streaming else response.tool_calls) or ())

    async def _run_tools(self, calls: list[Any]) -> bool:
        """Run the calls in parallel and store their results in call order; `False` when the turn is over."""
        group = str(uuid.uuid4())
        finished: dict[int, Content] = {}  # by the place of the call: ids are not unique in real life
        tasks = [asyncio.create_task(self._run_tool(finished, place, call, group)) for place, call in enumerate(calls)]
        try:
            await self._until_done(tasks)
        finally:  # of a turn that is cut off, what there is
            for place, content in sorted(finished.items()):
                named = {"name": calls[place].name} if self.streaming else {}
                answer = {"role": "tool", **named, "tool_call_id": calls[place].id, "content": content}
                await self.context.add_message(answer)
        return not await self._stopped()

    async def _until_done(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for all calls, or until the session is cancelled immediately: then some are left without a result."""
        running = set(tasks)
        try:
            while running:
                _, running = await asyncio.wait(running, timeout=None if self.coordinator is None else _POLL)
                if running and self.coordinator is not None and self.coordinator.cancellation.is_immediate:
                    break
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):  # a hook registry or a coordinator failed: not the tool's doing
                raise outcome

    async def _run_tool(self, finished: dict[int, Content], place: int, call: Any, group: str) -> None:
        token = None if self.coordinator is None else self.coordinator.cancellation
        if token is not None:
            token.register_tool_start(call.id, call.name)
        try:
            finished[place] = await self._result(call, group)
        finally:
            if token is not None:
                token.register_tool_complete(call.id)

    async def _result(self, call: Any, group: str) -> Content:
        """Return what answers a call; a denial, an unknown tool and an exception all become the text of a result."""
        about = {"tool_name": call.name, "tool_call_id": call.id, "parallel_group_id": group}
        asked = {**about, "tool_input": well_formed(call.arguments)}
        before = await self._emit("tool:pre", asked, call.name)
        if before.action == "deny":
            return f"Denied by a hook: {before.reason}"
        tool = self.tools.get(call.name)
        if tool is None:
            return await self._failed(about, LookupError(f"there is no tool {call.name!r}"))
        try:
            result = await tool.execute(call.arguments)
        except Exception as problem:  # noqa: BLE001 - whatever a tool raises, its call must be answered
            return await self._failed(about, problem)
        shown = _as_json(result.model_dump() if hasattr(result, "model_dump") else str(result))
        after = await self._emit("tool:post", {**asked, "result": shown}, call.name)
        self.injected += _ephemeral(after)
        changed = (as_mapping(after.data) or {}).get("result") if after.data is not None else None
        if changed is not None and changed != shown:
            return changed if isinstance(changed, str) else json.dumps(changed, default=str)
        if getattr(result, "content", None):
            return cast("list[Message]", result.model_dump()["content"])
        return result.get_serialized_output() if hasattr(result, "get_serialized_output") else str(result)

    async def _failed(self, about: Mapping[str, Any], problem: Exception) -> str:
        await self.hooks.emit("tool:error", {**about, "error": {"type": type(problem).__name__, "msg": str(problem)}})
        return f"Error: {problem}"

    async def _stopped(self) -> bool:
        """True if the session was cancelled; emit that once, and store the closing message of the config."""
        if self.coordinator is None or not self.coordinator.cancellation.is_cancelled:
            return False
        if self.status != "cancelled":
            self.status = "cancelled"
            immediate = bool(self.coordinator.cancellation.is_immediate)
            await self.hooks.emit("cancel:completed", {"was_immediate": immediate})
            if self.config.closing_message:
                await self.context.add_message({"role": "assistant", "content": self.config.closing_message})
        return True

    async def _ask(self, event: str, data: dict[str, Any]) -> Any:
        """Emit an event of the turn; where a hook denies it, the turn ends."""
        result = await self._emit(event, data, "orchestrator")
        if self.coordinator is not None and result.action == "deny":
            raise _Denied(result.reason or event)
        return result

    async def _emit(self, event: str, data: dict[str, Any], name: str) -> Any:
        result = await self.hooks.emit(event, data)
        if self.coordinator is not None:
            result = await self.coordinator.process_hook_result(result, event, name)
        return result


def _ephemeral(result: Any) -> list[Any]:
    """Return the injections of a hook result that are for one request only; the coordinator stored the others."""
    if getattr(result, "action", None) != "inject_context":
        return []
    return [item for item in getattr(result, "context_injections", []) if item.ephemeral and item.content]


def _inject(messages: list[Message], injection: Any) -> None:
    last = messages[-1] if messages else None
    content = last.get("content") if last is not None and last.get("role") == "tool" else None
    if injection.append_to_last_tool_result and last is not None and isinstance(content, str):
        messages[-1] = {**last, "content": f"{content}\n\n{injection.content}"}
    else:
        messages.append({"role": injection.role, "content": injection.content})


def _text(response: Any) -> str:
    content = response.content
    if isinstance(content, str):
        return content
    blocks = [_dumped(block) for block in as_list(content) or []]
    return "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


def _dumped(block: Any) -> Message:
    return block.model_dump() if hasattr(block, "model_dump") else dict(block)


def _is_overflow(problem: Exception) -> bool:
    from amplifier_core.llm_errors import ContextLengthError

    return isinstance(problem, ContextLengthError)


def _priority(provider: Any) -> float:
    """Lower goes first; 100 where a provider says nothing."""
    value = getattr(provider, "priority", None)
    return float(value) if isinstance(value, (int, float)) else 100.0


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(well_formed(value), default=str))
