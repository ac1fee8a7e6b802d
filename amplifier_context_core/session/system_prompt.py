"""Instructions of a view: leading system and developer messages, or the text of a factory in their place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..errors import ContextError
from ..messages.parsing import SYSTEM_ROLES, Message, metadata_of
from ..messages.tokens import TokenCounter, count_message_tokens
from ..rendering.renderer import RenderedMessage, Renderer
from ..rendering.rounds import Round
from ..rendering.sendable import scrub
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot

PromptFactory = Callable[[], Awaitable[str]]


class SystemPrompt:
    def __init__(self) -> None:
        self.factory: PromptFactory | None = None  # returns the text on every request; None to use the stored messages
        self._made: RenderedMessage | None = None

    async def messages(self, history: Snapshot, counter: TokenCounter) -> list[RenderedMessage]:
        """Return the first messages of a view. Messages of hooks stay in any case. Raises `ContextError`: the factory
        failed.
        """
        stored: list[RenderedMessage] = []
        for entry in history:
            if entry.role not in SYSTEM_ROLES:
                break
            replaced = self.factory and entry.role == "system" and metadata_of(entry.message).get("source") != "hook"
            if not replaced:
                stored.extend(Renderer(counter, output_limit=entry.tokens).render(Round((entry,))).messages)
        if self.factory is None:
            return stored
        try:
            text = await self.factory()
        except Exception as problem:
            raise ContextError(f"the system prompt factory failed: {type(problem).__name__}") from problem
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            return stored
        if self._made is None or self._made.message["content"] != text:
            message = scrub({"role": "system", "content": text})
            self._made = RenderedMessage(message, count_message_tokens(message, counter))
        return [self._made, *stored]


def rendered_instruction(message: Message, counter: TokenCounter) -> tuple[RenderedMessage, ...]:
    """Return a system message that the history does not have yet as a view will show it."""
    tokens = count_message_tokens(message, counter)
    entry = Entry(0, message, message["role"], 0, False, (), (), tokens, "", "", "")
    return tuple(Renderer(counter, output_limit=tokens).render(Round((entry,))).messages)
