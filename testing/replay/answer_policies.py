"""Answers of a replaying provider, and the policies that choose them.

An `Answer` is one model response without a model. It is written in a config as text, or as
`{"text": ..., "calls": [{"tool": ..., "arguments": {...}}], "thinking": ...}`.
A `Policy` is a callable from the request to the next answer; a list of answers is a policy that does not look.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Literal, cast

from ..checks.message_shapes import as_list, as_mapping


@dataclass(frozen=True, slots=True)
class Calling:
    """One tool call of an answer."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response of the provider.

    Attributes:
        blocks: content blocks in the kernel's spelling, without the calls.
        calls: tool calls; an answer with calls makes the loop go on, one without ends the turn.
        finish: why it ends if it has no calls: the model is done (`stop`), the output limit cut it off (`length`), or
            it refused (`refusal`).
    """

    blocks: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[Calling, ...] = ()
    metadata: Mapping[str, Any] | None = None
    finish: Literal["stop", "length", "refusal"] = "stop"

    @property
    def text(self) -> str:
        return "\n\n".join(str(block["text"]) for block in self.blocks if block.get("type") == "text")

    @classmethod
    def of(cls, value: Answer | str | Mapping[str, Any]) -> Answer:
        """Read an answer in any of its spellings.

        Raises:
            ValueError: it is none of them; the sentence says what it is.
        """
        if isinstance(value, Answer):
            return value
        if isinstance(value, str):
            return cls(blocks=_text_blocks(value))
        entry = as_mapping(value)
        if entry is None:
            raise ValueError(f"an answer is text or an object, not {type(value).__name__}")
        unknown = set(entry) - {"text", "calls", "thinking", "signature", "metadata"}
        if unknown:
            raise ValueError(
                f"an answer has no {', '.join(sorted(unknown))}: known are text, calls, thinking, metadata"
            )
        blocks: list[Mapping[str, Any]] = []
        if entry.get("thinking"):
            blocks.append({"type": "thinking", "thinking": entry["thinking"], "signature": entry.get("signature")})
        blocks += _text_blocks(str(entry.get("text") or ""))
        calls = tuple(_calling(item) for item in as_list(entry.get("calls")) or [])
        return cls(tuple(blocks), calls, as_mapping(entry.get("metadata")))


Policy = Callable[[Any], "Answer | str | Mapping[str, Any] | Awaitable[Any] | None"]
"""From a `ChatRequest` to the next answer, in any spelling; `None` when it has no more. May be a coroutine function."""


def in_order(answers: Iterable[Any]) -> Policy:
    """Return a policy that gives one answer after the other, or raises an exception among them; it reads no request."""
    rest = iter([answer if isinstance(answer, Exception) else Answer.of(answer) for answer in answers])

    def policy(request: Any) -> Answer | None:
        answer = next(rest, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return policy


def policy_named(path: str, config: Mapping[str, Any]) -> Policy:
    """Return the policy made by the factory at `module:name`, called once with the provider's config.

    Raises:
        ValueError: no such module, no such name, or what is there makes no policy.
    """
    if ":" not in path:
        raise ValueError(f"script {path!r} is not of the form 'module:factory'")
    try:
        factory = resolve_name(path)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ValueError(f"script {path!r} cannot be loaded: {problem}") from problem
    policy = factory(dict(config)) if callable(factory) else None
    if not callable(policy):
        raise ValueError(f"script {path!r} is no factory: it must take the config and return a policy")
    return cast(Policy, policy)


async def next_answer(policy: Policy, request: Any) -> Answer | None:
    """Ask a policy, whatever its colour and spelling."""
    found = policy(request)
    if inspect.isawaitable(found):
        found = await found
    return None if found is None else Answer.of(cast("Answer | str | Mapping[str, Any]", found))


def _text_blocks(text: str) -> tuple[Mapping[str, Any], ...]:
    return ({"type": "text", "text": text},) if text else ()


def _calling(item: Any) -> Calling:
    entry = as_mapping(item)
    name = entry.get("tool", entry.get("name")) if entry is not None else None
    if entry is None or not isinstance(name, str) or not name:
        raise ValueError(f"a call is an object with a tool name, not {item!r}")
    arguments = as_mapping(entry.get("arguments", entry.get("input")) or {})
    if arguments is None:
        raise ValueError(f"the arguments of a call to {name} are an object, not {entry.get('arguments')!r}")
    return Calling(name, dict(arguments), str(entry.get("id") or ""))
