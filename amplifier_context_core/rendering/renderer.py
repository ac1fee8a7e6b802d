"""Rendering of rounds as messages that are valid for every provider.

The history holds what hosts stored; providers accept far less. This module converts between the two, by rules that are
deterministic and idempotent and that report each change (`RenderedRound.fixes`):

- a call without a result gets one that states this; a result without its call becomes a quoted note;
- an id that is used twice is replaced by a unique one (Anthropic refuses a repeated ``tool_use`` id); ids and names
  that a provider refuses are sent in a form that all accept (provider_limits.py), in calls, results and blocks;
- empty texts are left out or get a placeholder; shapes that the kernel's `Message` refuses become shapes that it takes;
- calls on a user message (seen in real data) become text, because only an assistant can call;
- text of a tool without a call, or beside its results, is quoted, because providers do not take its role;
- a tool output above the limit is clipped, at any age, so that one large output cannot evict everything else.

A message that needs no fix is shown exactly as it is stored, without the keys that are not for providers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

from ..messages.carriers import is_carrier
from ..messages.hashing import content_hash
from ..messages.parsing import (
    CALL_BLOCKS,
    INTERRUPTED,
    NO_RESULT,
    Call,
    Message,
    Result,
    blocks_of,
    calls_of,
    is_signed,
    json_text,
    text_of,
)
from ..messages.tokens import TokenCounter, count_message_tokens
from ..messages.usage import Response
from ..transcript.entry import Entry
from .json_tables import MAX_CHARS, json_as_table
from .line_numbers import with_fewer_line_numbers
from .normalize import calls_as_text, normalize_block, normalize_call, normalize_call_block, normalize_call_item
from .offload import describe, offloaded
from .provider_limits import safe_call_id, safe_tool_name
from .quoting import quoted, single_line, without_surrogates
from .rounds import Results, Round
from .sendable import is_left_out, scrub, sendable, without_response_id
from .summaries import ResultSummaries, Summaries
from .thinking import only_thinking, thinking_in_place, without_thinking
from .truncate import clip_text

NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
OPENING: Message = {"role": "user", "content": "(The conversation begins with the following.)"}
NOTE_METADATA = {"source": "context-compaction"}  # marks text that no human wrote (docs/kernel.md)

_RENAMED = "an id or a name that a provider refuses is sent in another form"
_OFFLOADED = 4  # the description of an output, with head and tail, has a quarter of its limit
_TABLE = 4  # an output above a quarter of its limit is large enough for a table
_TOOL_ROLES = frozenset({"tool", "function"})  # roles of the kernel; providers do not take function
_UNKNOWN = Response()


class _Read:
    """Holds what is read from a message once: no field, so it is neither compared nor saved."""

    __slots__ = ("_bare", "_digest", "_is_plain", "bound_for")
    _bare: RenderedMessage | None
    _digest: bytes
    _is_plain: bool
    bound_for: tuple[tuple[str, str], bool]  # provider and model of a request, and whether they bind its thinking


@dataclass(frozen=True, slots=True)
class RenderedMessage(_Read):
    """One message of a view."""

    message: Message  # it is shared between views, and copied before a caller gets it
    tokens: int
    # The entry that it shows; 0 for other text (a chapter, the opening line); below 0 for a carrier beside a chapter.
    seq: int = 0
    provider: str | None = None  # the provider that wrote it, if known; thinking is kept for that provider only
    stored_call_id: str = ""  # for a result, the stored id of its call if it is sent under another one; else empty
    model: str | None = None  # the model that wrote it, if known
    # Hash of the request that it answers, if known; its thinking may be bound to that (docs/caching.md).
    prefix: str | None = None

    def without_response_id(self) -> RenderedMessage:
        message = without_response_id(self.message)
        return self if message is self.message else replace(self, message=message)

    def with_message(self, message: Message, counter: TokenCounter) -> RenderedMessage:
        return replace(self, message=message, tokens=count_message_tokens(message, counter))

    @property
    def is_plain(self) -> bool:
        """True if it is neither a carrier nor has signed thinking: every request is sent it as it is."""
        try:
            return self._is_plain
        except AttributeError:
            object.__setattr__(self, "_is_plain", not (is_carrier(self.message) or is_signed(self.message)))
            return self._is_plain

    @property
    def is_hashed(self) -> bool:
        return hasattr(self, "_digest")

    @property
    def digest(self) -> bytes:
        if not self.is_hashed:
            object.__setattr__(self, "_digest", content_hash(self.message))
        return self._digest

    def bare(self, counter: TokenCounter) -> RenderedMessage | None:
        """Leave the thinking out; return None if nothing is left. `counter` is that of the view."""
        if not hasattr(self, "_bare"):
            message = without_thinking(self.message)
            object.__setattr__(self, "_bare", None if message is None else self.with_message(message, counter))
        return self._bare


@dataclass(frozen=True, slots=True)
class RenderedRound:
    messages: tuple[RenderedMessage, ...]
    fixes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(shown.tokens for shown in self.messages)


@dataclass(slots=True)
class Renderer:
    """Renders the rounds of one view, and keeps the call ids that are used in it."""

    counter: TokenCounter
    output_limit: int  # tokens above which a single tool output is clipped
    output_bytes: int = 131_072  # UTF-8 bytes (about: characters) above which it is clipped as well
    interrupted: frozenset[int] = frozenset()  # turns whose open calls have placeholder results that state it
    summaries: Summaries = field(default_factory=dict[int, Mapping[str, str]])
    compacted_at: int = 0  # highest seq when the view's checkpoint was made; see `without_response_id`
    tables: bool = False  # show large JSON outputs as tables
    fewer_line_numbers: bool = False  # show each tenth number of listings
    offload_limit: int = 0  # tokens above which it is described instead (`rendering.offload`); 0 for never
    # By id: seq and index; and the reverse.
    _owners: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]], init=False)
    _ids: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str], init=False)
    # By seq, UTF-8 bytes of messages of many results.
    _sizes: dict[int, int] = field(default_factory=dict[int, int], init=False)

    def without_calls(self, interrupted: frozenset[int], compacted_at: int) -> Renderer:
        return replace(self, interrupted=interrupted, compacted_at=compacted_at)

    def register_calls(self, entry: Entry) -> None:
        """Calls come in the order of the view. The first call with an id keeps it."""
        if entry.role == "assistant":
            for index, call in enumerate(entry.call_ids):
                self._register(self._wire_id(entry, index, call), (entry.seq, index))

    def register_shown_calls(self, messages: Iterable[RenderedMessage]) -> None:
        """These calls keep the ids under which they are sent already."""
        for shown in messages:
            if shown.message["role"] == "assistant":
                for index, call in enumerate(calls_of(shown.message)):
                    self._register(call.id, (shown.seq, index))

    def _register(self, wire_id: str, owner: tuple[int, int]) -> None:
        self._owners[wire_id] = owner
        self._ids[owner] = wire_id

    def render(self, round_: Round) -> RenderedRound:
        """The messages are valid next to any other rendered round."""
        fixes: list[str] = []
        shown: list[RenderedMessage] = []
        if round_.is_tool_round and is_left_out(round_.head.message):  # with its results
            return RenderedRound(())
        entries = [entry for entry in round_.entries if not is_left_out(entry.message)]
        results = Results(entries)
        short_forms = ResultSummaries(self.summaries)
        for entry in entries:
            if entry.role == "assistant" and entry.call_ids:
                shown.extend(self._calls(entry, results, short_forms, fixes))
            elif not entry.answered_ids:
                shown.extend(self._text(entry, fixes))
        for entry, result in results.left():  # no call of this round has taken them: orphans
            fixes.append(f"{entry.mark}: a result without its call is shown as a note")
            shown.append(self._orphan(entry, result))
        for entry in entries:
            own = entry.role == "tool" and entry.message.get("tool_call_id")
            if entry.answered_ids and not own and not (entry.role == "assistant" and entry.call_ids):
                shown.extend(self._text(entry, fixes))
        return RenderedRound(tuple(shown), tuple(fixes))

    # -- calls and results ------------------------------------------------------------------------------------------

    def _calls(
        self, entry: Entry, results: Results, short_forms: ResultSummaries, fixes: list[str]
    ) -> list[RenderedMessage]:
        calls = [(call, self._wire_id(entry, index, call.id)) for index, call in enumerate(calls_of(entry.message))]
        if any(wire != safe_call_id(call.id) for call, wire in calls):
            fixes.append(f"{entry.mark}: a reused call id got a name of its own")
        if any(_is_refused(call) for call, _ in calls):
            fixes.append(f"{entry.mark}: {_RENAMED}")
        answers = [(call, wire, results.take(call.id)) for call, wire in calls]
        unanswered = sum(1 for _, _, found in answers if found is None)
        fixes += [f"{entry.mark}: an unanswered call is shown with a placeholder result"] * unanswered
        answers.sort(key=lambda answer: answer[2][0].seq if answer[2] else 1 << 62)  # placeholders last
        shown = [self._assistant(entry, calls)]
        for call, wire, found in answers:
            result = (
                self._result(found, wire, call, short_forms, fixes) if found else self._placeholder(entry, wire, call)
            )
            shown.append(result if wire == call.id else replace(result, stored_call_id=without_surrogates(call.id)))
        return shown

    def _assistant(self, entry: Entry, calls: list[tuple[Call, str]]) -> RenderedMessage:
        """`calls` have the ids under which they are sent."""
        source = entry.message
        message = sendable(source)
        if any(wire != call.id for call, wire in calls):
            message = without_response_id(message)  # the server holds these calls under other ids
        stored = source.get("content")
        stated = _with_calls_sent(blocks_of(source), calls) if isinstance(stored, list) else stored
        message["content"] = thinking_in_place(self._content(stated, "assistant"), calls=True)
        listed = cast("list[dict[str, Any]]", source.get("tool_calls") or [])
        items = [normalize_call_item(item, *call) for item, call in zip(listed, calls, strict=False)]
        message["tool_calls"] = items + [normalize_call(*call) for call in calls[len(items) :]]
        return self._rendered(message, entry)

    def _placeholder(self, entry: Entry, wire: str, call: Call) -> RenderedMessage:
        text = INTERRUPTED if entry.turn in self.interrupted else NO_RESULT
        message: Message = {"role": "tool", "tool_call_id": wire, "content": text}
        if call.name:
            message["name"] = safe_tool_name(call.name)
        return self._rendered(message, entry)

    def _result(
        self, found: tuple[Entry, Result], wire: str, call: Call, short_forms: ResultSummaries, fixes: list[str]
    ) -> RenderedMessage:
        entry, result = found
        message: Message = {"role": "tool", "tool_call_id": wire}
        if entry.role == "tool" and entry.message.get("tool_call_id"):
            message = {**sendable(entry.message), "tool_call_id": wire}
            message.pop("tool_calls", None)  # only an assistant can call
        message["content"] = self._content(result.content, "tool") or NO_OUTPUT
        shown: RenderedMessage | None = None
        listing = self._listing(message["content"])
        if listing is not None:
            fixes.append(f"{entry.mark}: each tenth line of a listing is shown with its number")
            shown = self._rendered({**message, "content": listing}, entry)
            message = shown.message
        table = self._table(message["content"], entry)
        if table is not None:
            fixes.append(f"{entry.mark}: an output in JSON is shown with fewer signs")
            shown = self._rendered({**message, "content": table}, entry)
            message = shown.message
        text = text_of(cast(object, message["content"]))
        tokens, size = shown.tokens if shown else self._weight(text, entry), utf8_size(text)
        if self.offload_limit and tokens > self.offload_limit and text.strip():
            fixes.append(f"{entry.mark}: an output too large for the view is described")
            if short_forms.registered(entry, call.id) is None:
                room = max(200, int(len(text) * self.output_limit / (_OFFLOADED * tokens)))
                description = short_forms.of(entry, call.id) or describe(text_of(result.content))
                described = offloaded(text, room, entry.mark, description)
                return self._rendered({**message, "content": described}, entry)
            room = int(len(text) * min(1.0, self.output_limit / tokens))
        elif tokens > self.output_limit or size > self.output_bytes:
            fixes.append(f"{entry.mark}: an output larger than its share is clipped")
            share = min(1.0, self.output_limit / max(tokens, 1), self.output_bytes / max(size, 1))
            room = int(len(text) * share * 0.95)
        else:
            return shown or self._rendered(message, entry)
        return self._rendered(short_result(message, entry, call.id, max(200, room), short_forms), entry)

    @property
    def _longest(self) -> int:
        """Characters above which an output is not written otherwise."""
        return max(MAX_CHARS, self.output_bytes)

    def _listing(self, content: object) -> str | None:
        """Return an output with fewer line numbers; None if it is no listing."""
        if not self.fewer_line_numbers or not isinstance(content, str) or len(content) > self._longest:
            return None
        fewer = with_fewer_line_numbers(content)
        return fewer if fewer is not content else None

    def _table(self, content: object, entry: Entry) -> str | None:
        """Return JSON of a tool that is large, or mostly lines of a text, as a table; None if it is shown as it is."""
        if not self.tables or not isinstance(content, str):
            return None
        is_large = _TABLE * self._weight(content, entry) > self.output_limit
        return json_as_table(content, self._longest, is_large=is_large)

    def _weight(self, text: str, entry: Entry) -> int:
        """Return the tokens of a result; of one of several in a message, about its share of the whole."""
        if len(entry.answered_ids) <= 1:
            return entry.tokens
        if entry.seq not in self._sizes:
            self._sizes[entry.seq] = utf8_size(text_of(entry.message.get("content")))
        size, whole = utf8_size(text), self._sizes[entry.seq]
        return entry.tokens if whole <= size else entry.tokens * size // whole

    def _orphan(self, entry: Entry, result: Result) -> RenderedMessage:
        content = self._content(result.content, "tool")
        of = f" of {single_line(result.name)[:80]}" if result.name else ""
        apart = "apart from its call" if entry.human else "whose call is not part of this conversation"
        return self._quoted(entry, f"A tool result{of} {apart}", content)

    def _wire_id(self, entry: Entry, index: int, call_id: str) -> str:
        me = (entry.seq, index)
        free = (name for name in _names(entry, index, call_id) if self._owners.get(name, me) == me)
        return self._ids.get(me) or next(free)

    # -- everything else --------------------------------------------------------------------------------------------

    def _text(self, entry: Entry, fixes: list[str]) -> list[RenderedMessage]:
        """Return the text of a message besides results: in its own role, or quoted if it is of a tool or a function."""
        by_tool = entry.role in _TOOL_ROLES
        content = self._content(entry.message.get("content"), "user" if by_tool else entry.role)
        message = sendable(entry.message)
        message.pop("tool_calls", None)
        if "name" in message and message["name"] != entry.message["name"] and not by_tool:
            fixes.append(f"{entry.mark}: {_RENAMED}")
        if entry.call_ids:  # an assistant's calls are rendered as calls
            fixes.append(f"{entry.mark}: calls on a message that is no assistant's are shown as words")
            content = calls_as_text(content, list(calls_of(entry.message)))
        content = thinking_in_place(content, calls=False)
        if only_thinking(content):
            content = ""
        if not content and entry.answered_ids:
            return []  # nothing but results
        if by_tool:
            fixes.append(f"{entry.mark}: what a tool says is shown as a note")
            return [self._quoted(entry, "Output of a tool beside its results", content)]
        if not content:
            fixes.append(f"{entry.mark}: an empty message is " + ("left out" if entry.role != "user" else "named so"))
            if entry.role != "user":
                return []
            content = EMPTY_MESSAGE
        return [self._rendered({**message, "content": content}, entry)]

    def _quoted(self, entry: Entry, what: str, content: str | list[dict[str, Any]]) -> RenderedMessage:
        """The role is the user's: quoted and labelled, text of a tool cannot pose as a person."""
        room = max(200, min(self.output_bytes, self.output_limit * 3))
        text = clip_text(text_of(cast(object, content)), room, entry.mark)
        body: str | list[dict[str, Any]] = quoted(f"{entry.mark}: {what}", text if text.strip() else NO_OUTPUT)
        media = [block for block in content if block.get("type") == "image"] if isinstance(content, list) else []
        if media:
            body = [{"type": "text", "text": body}, *media]
        message: Message = {"role": "user", "content": body, "metadata": dict(NOTE_METADATA)}
        return self._rendered(message, entry)

    def _content(self, content: object, role: str) -> str | list[dict[str, Any]]:
        """Return content that the kernel's `Message` and the providers take; empty if nothing can be shown."""
        if isinstance(content, str):
            return content if content.strip() else ""
        if content is None:
            return ""
        if not isinstance(content, list):
            return json_text(content)
        blocks: list[dict[str, Any]] = []
        for item in cast("list[object]", content):
            block = (
                cast("dict[str, Any]", item) if isinstance(item, dict) else {"type": "text", "text": json_text(item)}
            )
            if block.get("type") == "tool_result" and role != "tool":
                continue  # rendered as a message of its own
            normalized = normalize_block(block, role)
            if normalized is not None:
                blocks.append(normalized)
        return blocks or ""

    def _rendered(self, message: Message, entry: Entry) -> RenderedMessage:
        """A message with the content and the calls of its entry has its tokens."""
        safe = scrub(message)
        is_same = safe is message and _counted(message) == _counted(entry.message)
        tokens = entry.tokens if is_same else count_message_tokens(safe, self.counter)
        if entry.seq <= self.compacted_at:
            safe = without_response_id(safe)
        response = entry.response or _UNKNOWN
        return RenderedMessage(safe, tokens, entry.seq, response.provider, model=response.model, prefix=response.prefix)


def _with_calls_sent(blocks: list[dict[str, Any]], calls: Sequence[tuple[Call, str]]) -> list[dict[str, Any]]:
    """Return the blocks with their calls as they are sent.

    A block that repeats a call more often than `tool_calls` does is left out.
    """
    waiting: dict[str, deque[tuple[Call, str]]] = {}
    for call, wire in calls:
        waiting.setdefault(call.id, deque()).append((call, wire))
    stated: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") not in CALL_BLOCKS:
            stated.append(block)
        elif waiting[block["id"]]:
            stated.append(normalize_call_block(block, *waiting[block["id"]].popleft()))
    return stated


def _counted(message: Message) -> tuple[object, ...]:
    """Return what of a message costs tokens; null content costs as much as an empty one."""
    return message["role"], message.get("content") or None, message.get("tool_calls") or None


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_refused(call: Call) -> bool:
    return call.id != safe_call_id(call.id) or (call.name != "" and call.name != safe_tool_name(call.name))


def _names(entry: Entry, index: int, call_id: str) -> Iterator[str]:
    """Yield the ids under which a call may be sent: its own, then ids that contain the mark of its message."""
    yield safe_call_id(call_id)
    other = f"{call_id}_m{entry.seq}" if index == 0 else f"{call_id}_m{entry.seq}_{index}"
    yield safe_call_id(other)
    for number in count(2):
        yield safe_call_id(f"{other}_{number}")


def short_result(message: Message, entry: Entry, call_id: str, max_chars: int, short_forms: ResultSummaries) -> Message:
    """Return a tool result in about `max_chars` characters: its summary if it has one, else head and tail."""
    summary = short_forms.of(entry, call_id)
    text = clip_text(summary if summary is not None else text_of(message["content"]), max_chars, entry.mark)
    return {**message, "content": text if text.strip() else NO_OUTPUT}
