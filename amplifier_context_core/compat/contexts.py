"""Context stores, as other frameworks know them: one object is one conversation.

`ContextStore` is what people subclass to keep conversations anywhere. Two come with it: `StoredContext` keeps one in
any store of the core, so that a session begun here can be gone on with by a `ContextManager`, and the other way round;
`MemoryContextStore` is the same in memory. What goes in may be typed or a dict; what comes out is typed, and gives back
the dict it was (see `typed`).
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, cast

import orjson

from ..errors import ConfigError, InvalidMessage, StoreError
from ..locks import Gate
from ..messages.parsing import Message as Wire
from ..messages.parsing import MessageInfo
from ..messages.timestamps import timestamp_of, utc_now
from ..messages.tokens import TokenCounter, approx_token_counter, measure
from ..stores import Extent, MemoryStore, Store
from ..transcript.provenance import response_of
from ..transcript.transcript import Entry, Transcript
from .blocks import within
from .typed import Message, wire_of

_BREATHE = 200  # messages read or written between two breaths of the event loop
_TOKENS = "amplifier_context_compat_tokens"  # the one key of the bytes that keep them


class ContextStore(ABC):
    """One conversation, and where it is kept.

    Subclasses say how messages are added, read, cleared and forked; the rest is here and may be overridden.
    """

    _context_tokens: tuple[int, int] = (0, 0)

    @property
    @abstractmethod
    def session_id(self) -> str:
        """Identity of the conversation; a fork has another."""

    @abstractmethod
    async def append(self, message: Message | Mapping[str, Any]) -> None:
        """Add a message, typed or a dict of any shape the core reads. What the caller does to it later has no effect.

        Raises:
            InvalidMessage: it is malformed; the field is named, nothing was stored.
        """

    @abstractmethod
    async def get_history(self) -> list[Message]:
        """All messages in order, typed, the caller's to change. A new conversation has none."""

    @abstractmethod
    async def clear(self) -> None:
        """Forget all messages; the session id stays. Clearing an empty conversation is a no-op."""

    @abstractmethod
    async def fork(self) -> ContextStore:
        """A conversation with these messages, these token counts and a new session id, which goes its own way."""

    async def extend(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add several messages; here one after another, so those before one that is malformed are stored.

        Raises:
            InvalidMessage: one of them is malformed.
        """
        for message in messages:
            await self.append(message)

    async def set_context_tokens(self, input_tokens: int, output_tokens: int) -> None:
        """Note how many tokens the conversation has taken; here for as long as this object lives.

        Args:
            input_tokens: at least 0.
            output_tokens: at least 0.

        Raises:
            ConfigError: one of them is no such number.
        """
        self._context_tokens = _checked_tokens(input_tokens, output_tokens)

    async def get_context_tokens(self) -> tuple[int, int]:
        """Input and output tokens as they were set last; ``(0, 0)`` before."""
        return self._context_tokens

    async def close(self) -> None:
        """Give back what this conversation holds open; here nothing. Closing twice is a no-op."""
        return

    @classmethod
    async def from_history(cls, messages: Iterable[Message | Mapping[str, Any]], **options: Any) -> Self:
        """A new conversation with copies of these messages.

        Args:
            messages: typed, or dicts of any shape the core reads.
            options: what the class is made with, e.g. `session_id`.

        Raises:
            InvalidMessage: one of them is malformed.
            StoreError: there is a conversation with that session id already.
        """
        made = cls(**options)
        if await made.get_history():
            raise StoreError(f"session {made.session_id!r} has a history already; choose another id, or clear it")
        await made.extend(messages)
        return made

    @classmethod
    async def from_context(cls, other: ContextStore, **options: Any) -> Self:
        """A new conversation with copies of another's messages and its token counts; see `from_history`."""
        made = await cls.from_history(await other.get_history(), **options)
        await made.set_context_tokens(*await other.get_context_tokens())
        return made


class StoredContext(ContextStore):
    """A conversation in a store of the core: JSONL files, SQLite, PostgreSQL, Redis, memory.

    Messages are kept as they were given, each with its tokens. The first change claims the session for writing, until
    `close`; use one object a session at a time. The store stays open for others: whoever made it closes it.

    Context tokens are kept where the store keeps checkpoints, and so survive the process. Where a `ContextManager`
    has left a checkpoint of its own in the session, that is not touched: then they last as long as this object. One
    that goes on with the session finds no checkpoint it can use, makes its own, and the tokens kept there are gone.
    `clear` sets them to zero.

    Args:
        store: keeps it; made by `open_store` or by hand.
        session_id: a session to go on with, or to begin; a new one when not given.
        counter: text to tokens, for what is written down of each message.
        clock: gives the time as ISO 8601 text, UTC.

    Raises:
        ConfigError: `store` is no store. What cannot be a session id is refused by the first call that uses it.
    """

    def __init__(
        self,
        store: Store,
        session_id: str | None = None,
        *,
        counter: TokenCounter = approx_token_counter,
        clock: Callable[[], str] = utc_now,
    ) -> None:
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("store", f"must be a store of the core, got {type(store).__name__}")
        self._store = store
        self._session_id = new_session_id() if session_id is None else session_id
        self._counter = counter
        self._clock = clock
        self._gate = Gate()
        self._newest: tuple[Extent, list[Entry]] | None = (
            None  # how our last change left the session, and its last entry
        )
        self._tokens: tuple[int, int] | None = None  # as set through this object

    @property
    def session_id(self) -> str:
        """Identity of the conversation, in its store and in its entries."""
        return self._session_id

    async def append(self, message: Message | Mapping[str, Any]) -> None:
        """Add a message, typed or a dict of any shape the core reads, as durably as the store promises.

        Raises:
            InvalidMessage: it is malformed; the field is named, nothing was stored.
            StoreError: the store refused it; nothing was stored.
        """
        await self._write([wire_of(message)])

    async def extend(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add several messages, all or none.

        Raises:
            InvalidMessage: one of them is malformed; field and place are named, nothing was stored.
            StoreError: the store refused them; nothing was stored.
        """
        read: list[tuple[Wire, MessageInfo]] = []
        for index, message in enumerate(messages):
            try:
                read.append(wire_of(message))
            except InvalidMessage as problem:
                raise within(f"messages[{index}]", problem) from None
            if index % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        if read:
            await self._write(read)

    async def get_history(self) -> list[Message]:
        """All messages in order, typed, the caller's to change. A session that is not there yet has none.

        Raises:
            StoreError: the store cannot read them.
        """
        async with self._gate:
            entries = await self._store.read(self._session_id)
        messages: list[Message] = []
        for index, entry in enumerate(entries):
            messages.append(Message.from_dict(entry.message))
            if index % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        return messages

    async def clear(self) -> None:
        """Forget all messages and set the context tokens to zero. A store with an archive still has the messages there.

        Raises:
            StoreError: the store refused it.
        """
        async with self._gate:
            await self._store.replace(self._session_id, 0, ())
            if await self._load_tokens() != (0, 0):
                await self._save_tokens((0, 0))

    async def fork(self) -> StoredContext:
        """A conversation in the same store, with these messages and token counts and a new session id.

        Raises:
            StoreError: the store refused it.
        """
        forked = StoredContext(self._store, counter=self._counter, clock=self._clock)
        async with self._gate:
            if (await self._store.extent(self._session_id)).length:
                await self._store.fork(self._session_id, forked.session_id)
            tokens = await self._load_tokens()
        if tokens != await forked.get_context_tokens():
            await forked.set_context_tokens(*tokens)
        return forked

    async def set_context_tokens(self, input_tokens: int, output_tokens: int) -> None:
        """Note how many tokens the conversation has taken; see the class for how long that lasts.

        Args:
            input_tokens: at least 0.
            output_tokens: at least 0.

        Raises:
            ConfigError: one of them is no such number.
            StoreError: the store refused them.
        """
        tokens = _checked_tokens(input_tokens, output_tokens)
        async with self._gate:
            await self._save_tokens(tokens)

    async def get_context_tokens(self) -> tuple[int, int]:
        """Input and output tokens as they were set last; ``(0, 0)`` before.

        Raises:
            StoreError: the store cannot read them.
        """
        async with self._gate:
            return await self._load_tokens()

    async def close(self) -> None:
        """Let another writer have the session. A later change claims it again; closing twice is a no-op.

        Raises:
            StoreError: what was still to be written could not be.
        """
        async with self._gate:
            await self._store.release(self._session_id)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _write(self, read: list[tuple[Wire, MessageInfo]]) -> None:
        tokens = [await measure(message, self._counter) for message, _ in read]
        async with self._gate:
            # Asked anew each time: a call that was cancelled may have been carried out.
            extent = await self._store.open(self._session_id)
            if self._newest is None or self._newest[0] != extent:
                self._newest = (extent, await self._store.read(self._session_id, -1))
            newest = self._newest[1]
            drafts = Transcript.resumed(
                self._session_id, (), newest, length=len(newest), last_seq=extent.last_seq
            )  # all that new entries need to know of the history is how it ends
            entries: list[Entry] = []
            for (message, info), cost in zip(read, tokens, strict=True):
                created = timestamp_of(message) or self._clock()
                response = response_of(message, None) if info.role == "assistant" else None
                entries.append(drafts.draft(message, info, cost, created=created, response=response))
                drafts.append(entries[-1])
            await self._store.append(self._session_id, entries)
            self._newest = (Extent(extent.length + len(entries), drafts.last_seq), entries[-1:])

    async def _save_tokens(self, tokens: tuple[int, int]) -> None:
        kept = await self._store.load_checkpoint(self._session_id)
        if kept is None or _tokens_in(kept) is not None:
            await self._store.save_checkpoint(self._session_id, 0, orjson.dumps({_TOKENS: tokens}))
        self._tokens = tokens

    async def _load_tokens(self) -> tuple[int, int]:
        if self._tokens is not None:
            return self._tokens
        kept = await self._store.load_checkpoint(self._session_id)
        return (_tokens_in(kept) if kept is not None else None) or (0, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(session_id={self._session_id!r})"


class MemoryContextStore(StoredContext):
    """A conversation in memory, gone with the object.

    Args:
        session_id: its identity; a new one when not given.
        counter: text to tokens, for what is noted of each message.
    """

    def __init__(self, session_id: str | None = None, *, counter: TokenCounter = approx_token_counter) -> None:
        super().__init__(MemoryStore(), session_id, counter=counter)

    async def clear(self) -> None:
        """Forget all messages for good, and set the context tokens to zero."""
        async with self._gate:
            await self._store.delete(self._session_id)  # to replace them would leave them in the archive
            self._tokens = self._newest = None

    async def fork(self) -> MemoryContextStore:
        """A conversation in memory of its own, with these messages and token counts and a new session id."""
        forked = MemoryContextStore(counter=self._counter)
        async with self._gate:
            await forked._store.append(forked.session_id, await self._store.read(self._session_id))
            tokens = await self._load_tokens()
        await forked.set_context_tokens(*tokens)
        return forked


def new_session_id() -> str:
    """32 hexadecimal digits that no other session has."""
    return uuid.uuid4().hex


def _checked_tokens(input_tokens: object, output_tokens: object) -> tuple[int, int]:
    for name, value in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            shown = value if isinstance(value, (int, float)) else type(value).__name__
            raise ConfigError(name, f"must be a whole number of at least 0, got {shown}")
    return cast("tuple[int, int]", (input_tokens, output_tokens))


def _tokens_in(data: bytes) -> tuple[int, int] | None:
    """The token counts that were saved as these bytes; None when the bytes are somebody else's."""
    if not data.startswith(b"{"):
        return None
    try:
        held: object = orjson.loads(data)
        kept: object = cast("dict[str, object]", held).get(_TOKENS)
        return _checked_tokens(*cast("list[object]", kept)) if isinstance(kept, list) else None
    except (orjson.JSONDecodeError, ConfigError, TypeError):
        return None
