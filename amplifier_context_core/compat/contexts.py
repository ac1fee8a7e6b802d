"""Context stores, like those of other frameworks: one object is one conversation.

`ContextStore` is the base class for keeping conversations anywhere. Two subclasses come with it. `StoredContext` keeps
a conversation in any store of the core, so that a `ContextManager` can continue the session, and the other way round.
`MemoryContextStore` keeps it in memory. Messages may be given typed or as dicts. They are returned typed, and each
returns the dict that it was made from (see `typed`).
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import orjson

from ..errors import ConfigError, InvalidMessage, StoreError
from ..futures import LoopTurns, in_thread
from ..locks import CrossLoopLock
from ..messages.parsing import Message as RawMessage
from ..messages.parsing import MessageInfo
from ..messages.timestamps import timestamp_of, utc_now
from ..messages.tokens import TokenCounter, approx_token_counter, measure
from ..messages.usage import response_of
from ..stores import MemoryStore, Searchable, Store
from ..transcript.search import ScanIndex
from ..transcript.transcript import Snapshot, Transcript
from .blocks import prefixed_error
from .typed import Message, to_raw, to_typed

_TOKENS = "amplifier_context_compat_tokens"  # the only key of a checkpoint that holds token counts


class ContextStore(ABC):
    """One conversation, and where it is kept.

    A subclass implements how messages are added, read, cleared and forked. It may override the rest.
    """

    _context_tokens: tuple[int, int] = (0, 0)

    @property
    @abstractmethod
    def session_id(self) -> str:
        """Id of the conversation; a fork has another."""

    @abstractmethod
    async def append(self, message: Message | Mapping[str, Any]) -> None:
        """Add a message, typed or a dict in any shape that the core reads. Later changes of it have no effect.

        Raises:
            InvalidMessage: it is malformed; the error names the field, and nothing was stored.
        """

    @abstractmethod
    async def get_history(self) -> list[Message]:
        """Return all messages in order, typed; the caller may change them. A new conversation has none."""

    @abstractmethod
    async def clear(self) -> None:
        """Remove all messages; the session id stays. Clearing an empty conversation is a no-op."""

    @abstractmethod
    async def fork(self) -> ContextStore:
        """Return an independent conversation with these messages and token counts, and a new session id."""

    async def extend(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add several messages. The base class adds one after another: those before a malformed one are stored."""
        for message in messages:
            await self.append(message)

    async def search(self, query: str, limit: int = 10) -> list[Message]:
        """Return the messages that match words best, the best first; the caller may change them.

        Text, calls with their arguments, and results of tools are searched, for words, paths, and phrases in double
        quotes; nothing else is syntax. The base class scans the whole history; a subclass over a database may search
        there.
        """
        messages, entries = await entries_of(await self.get_history())
        found = await in_thread(ScanIndex().search, entries, query, limit)
        return [messages[entry.seq - 1] for entry in found]

    async def set_context_tokens(self, input_tokens: int, output_tokens: int) -> None:
        """Record how many tokens the conversation has used. The base class keeps them as long as this object lives.

        Raises:
            ConfigError: one of them is not a whole number from 0 to 2**63 - 1.
        """
        self._context_tokens = _checked_tokens(input_tokens, output_tokens)

    async def get_context_tokens(self) -> tuple[int, int]:
        """Return the input and output tokens that were set last; ``(0, 0)`` before."""
        return self._context_tokens

    async def close(self) -> None:
        """Release what this conversation holds open; in the base class nothing. Closing twice is a no-op."""
        return

    @classmethod
    async def from_history(cls, messages: Iterable[Message | Mapping[str, Any]], **options: Any) -> Self:
        """Return a new conversation with copies of messages. `options` are arguments of the class, e.g. `session_id`.

        Raises:
            InvalidMessage: one of them is malformed.
            StoreError: a conversation with that session id exists already.
        """
        made = cls(**options)
        if await made.get_history():
            raise StoreError(f"session {made.session_id!r} has a history already; choose another id, or clear it")
        await made.extend(messages)
        return made

    @classmethod
    async def from_context(cls, other: ContextStore, **options: Any) -> Self:
        """Return a new conversation with copies of another one's messages and token counts; see `from_history`."""
        made = await cls.from_history(await other.get_history(), **options)
        await made.set_context_tokens(*await other.get_context_tokens())
        return made


class StoredContext(ContextStore):
    """A conversation in a store of the core: JSONL files, SQLite, PostgreSQL, Redis, memory.

    Messages are kept unchanged, each with its tokens. The first change locks the session for writing, until `close`;
    use one object per session at a time. The conversation does not close the store: its creator does.

    Context tokens are kept as the session's checkpoint, and so survive the process. If a `ContextManager` has left its
    own checkpoint in the session, that stays, and the tokens last as long as this object. A `ContextManager` that
    continues the session cannot use the tokens as a checkpoint. It writes its own, and the tokens are lost. `clear`
    sets them to zero.

    Each method raises `StoreError` if the store refuses it; then nothing was changed.

    Args:
        session_id: of a session to continue or to begin; a new one if None.
        counter: counts the tokens of a text; the count of each message is stored.

    Raises:
        ConfigError: `store` is not a store. An invalid session id is refused by the first call that uses it.
    """

    def __init__(
        self,
        store: Store,
        session_id: str | None = None,
        *,
        counter: TokenCounter = approx_token_counter,
    ) -> None:
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("store", f"must be a store of the core, got {type(store).__name__}")
        self._store = store
        self._session_id = uuid.uuid4().hex if session_id is None else session_id
        self._counter = counter
        self._lock = CrossLoopLock()
        self._tokens: tuple[int, int] | None = None  # set through this object

    @property
    def session_id(self) -> str:
        return self._session_id

    async def append(self, message: Message | Mapping[str, Any]) -> None:
        await self._write([to_raw(message)])

    async def extend(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add all of the messages, or none.

        Raises:
            InvalidMessage: one of them is malformed; the error names index and field, and nothing was stored.
        """
        parsed: list[tuple[RawMessage, MessageInfo]] = []
        turns = LoopTurns()
        for index, message in enumerate(messages):
            try:
                parsed.append(to_raw(message))
            except InvalidMessage as problem:
                raise prefixed_error(f"messages[{index}]", problem) from None
            await turns.give()
        if parsed:
            await self._write(parsed)

    async def get_history(self) -> list[Message]:
        """A session that does not exist has none."""
        messages: list[Message] = []
        turns = LoopTurns()
        for entry in await self._store.read(self._session_id):
            messages.append(Message.from_dict(entry.message))
            await turns.give()
        return messages

    async def search(self, query: str, limit: int = 10) -> list[Message]:
        """A store with a search index of its own is asked; of another one the whole history is read and scanned."""
        if not isinstance(self._store, Searchable):
            return await super().search(query, limit)
        seqs = await self._store.search(self._session_id, query, limit)
        entries = {entry.seq: entry for entry in await self._store.find(self._session_id, seqs)}
        return [Message.from_dict(entries[seq].message) for seq in seqs if seq in entries]

    async def clear(self) -> None:
        """Set the context tokens to zero as well. A store with an archive still has the messages there."""
        async with self._lock.hold():
            await self._store.replace(self._session_id, 0, ())
            if await self.get_context_tokens() != (0, 0):
                await self._save_tokens((0, 0))

    async def fork(self) -> StoredContext:
        """The fork is in the same store."""
        forked = StoredContext(self._store, counter=self._counter)
        async with self._lock.hold():
            if (await self._store.extent(self._session_id)).length:
                await self._store.fork(self._session_id, forked.session_id)
            tokens = await self.get_context_tokens()
        if tokens != await forked.get_context_tokens():
            await forked.set_context_tokens(*tokens)
        return forked

    async def set_context_tokens(self, input_tokens: int, output_tokens: int) -> None:
        """See the class for how long they are kept."""
        tokens = _checked_tokens(input_tokens, output_tokens)
        async with self._lock.hold():
            await self._save_tokens(tokens)

    async def get_context_tokens(self) -> tuple[int, int]:
        if self._tokens is not None:
            return self._tokens
        checkpoint = await self._store.load_checkpoint(self._session_id)
        return (_decode_tokens(checkpoint) if checkpoint is not None else None) or (0, 0)

    async def close(self) -> None:
        """Unlock the session for other writers. A later change locks it again; closing twice is a no-op."""
        async with self._lock.hold():
            await self._store.release(self._session_id)

    async def _write(self, parsed: list[tuple[RawMessage, MessageInfo]]) -> None:
        tokens = [await measure(message, self._counter) for message, _ in parsed]
        async with self._lock.hold():
            # Opened again each time: an earlier call that was cancelled may have been carried out.
            extent = await self._store.open(self._session_id)
            newest = await self._store.read(self._session_id, -1)  # new entries depend on no other
            drafts = Transcript.resumed(self._session_id, (), newest, length=len(newest), last_seq=extent.last_seq)
            for (message, info), cost in zip(parsed, tokens, strict=True):
                created = timestamp_of(message) or utc_now()
                response = response_of(message, None) if info.role == "assistant" else None
                drafts.append(drafts.draft(message, info, cost, created=created, response=response))
            await self._store.append(self._session_id, list(drafts.snapshot())[len(newest) :])

    async def _save_tokens(self, tokens: tuple[int, int]) -> None:
        checkpoint = await self._store.load_checkpoint(self._session_id)
        if not checkpoint or _decode_tokens(checkpoint) is not None:
            await self._store.save_checkpoint(self._session_id, 0, orjson.dumps({_TOKENS: tokens}))
        self._tokens = tokens

    def __repr__(self) -> str:
        return f"{type(self).__name__}(session_id={self._session_id!r})"


class MemoryContextStore(StoredContext):
    """A conversation in memory, which ends with the object."""

    def __init__(self, session_id: str | None = None, *, counter: TokenCounter = approx_token_counter) -> None:
        super().__init__(MemoryStore(), session_id, counter=counter)

    async def clear(self) -> None:
        async with self._lock.hold():
            await self._store.delete(self._session_id)  # `replace` would leave them in the archive
            self._tokens = None

    async def fork(self) -> MemoryContextStore:
        """The fork has its own memory."""
        return await MemoryContextStore.from_context(self, counter=self._counter)


async def entries_of(history: Sequence[Message | Mapping[str, Any]]) -> tuple[list[Message], Snapshot]:
    """Return the messages of a conversation, typed, and as entries whose seqs count from 1 without gaps."""
    messages: list[Message] = []
    transcript, turns = Transcript(), LoopTurns()
    for given in history:
        messages.append(to_typed(given))
        message, info = to_raw(messages[-1])
        transcript.append(transcript.draft(message, info, 0, created=""))
        await turns.give()
    return messages, transcript.snapshot()


def checked_amount(key: str, value: object) -> int:
    """Refuse what is not a whole number from 0 to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ConfigError(key, "must be a whole number from 0 to 2**63 - 1")
    return value


def _checked_tokens(input_tokens: object, output_tokens: object) -> tuple[int, int]:
    return checked_amount("input_tokens", input_tokens), checked_amount("output_tokens", output_tokens)


def _decode_tokens(data: bytes) -> tuple[int, int] | None:
    """Return None if another program wrote the checkpoint."""
    try:
        return _checked_tokens(*orjson.loads(data)[_TOKENS])
    except (ValueError, TypeError, KeyError):
        return None
