"""The model that writes a summary: a function, a provider of the kernel, or any object with `complete`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ..economics.budget import provider_window
from ..errors import ConfigError, PluginError
from ..messages.usage import COMPACTION_PURPOSE, text_of_answer

Complete = Callable[[str], Awaitable[str]]

_SAFETY = 2_000  # tokens of the window that are kept free: the instruction, and what a provider counts besides


class Transport(Protocol):
    """A model behind a method."""

    @property
    def complete(self) -> Callable[..., Awaitable[Any]]:
        """Await an answer.

        A provider of the kernel, which is an object with `get_info`, is passed a `ChatRequest` and returns a
        `ChatResponse`. Any other object is passed the text of the prompt. It returns text, or an object with
        ``content`` like a response.
        """
        ...


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is asked once."""

    ask_text: Callable[[str], Awaitable[object]]  # from a prompt to an answer, as the model gives it
    window: int | None = None  # tokens that the prompt may have; None if that is not known

    @classmethod
    def of(cls, complete: object, transport: object) -> Model:
        """Raises `ConfigError`: both or neither of the arguments are given, or the one given is no model."""
        if (complete is None) == (transport is None):
            raise ConfigError("transport", "needs one model: give either `complete` or `transport`")
        given, name = (transport, "transport") if complete is None else (complete, "complete")
        method = getattr(given, "complete", None)
        if not callable(method) and (complete is None or not callable(given)):
            by_call = "" if complete is None else "be an async function, or "
            raise ConfigError(name, f"must {by_call}have a method `complete`; {type(given).__name__} is no model")
        asked: Callable[[object], Awaitable[object]] = cast(Any, method if callable(method) else given)
        if callable(method) and callable(getattr(given, "get_info", None)):
            return cls(lambda prompt: asked(_request(prompt)), provider_window(given, 1.0, _SAFETY))
        return cls(asked)

    async def summary(self, prompt: str) -> str:
        """Exceptions of the model pass through.

        Raises:
            PluginError: it answered without text.
        """
        answer = await self.ask_text(prompt)
        text = text_of_answer(answer)
        if text is None or not text.strip():
            got = type(answer).__name__ if text is None else "an empty text"
            raise PluginError(f"complete: must return the text of a summary, got {got}; the conversation is unchanged")
        return text


def _request(prompt: str) -> object:
    from amplifier_core import ChatRequest

    return ChatRequest.model_validate(
        {
            "messages": [{"role": "user", "content": prompt}],
            "stream": False,
            "metadata": {"purpose": COMPACTION_PURPOSE, "stream": False},
        }
    )
