"""What requests were sent: their views, and what each provider and model may still have of them in its cache.

Not locked: the `Compactor` lets one task in at a time, but for `SentViews.announce`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ..economics.cold_cache import Pause, PrefixBreak
from ..economics.meter import Key
from ..economics.trigger import TokenLimits
from ..events import PREFIX_CHANGED, Hooks, emit, inside_handler
from ..futures import YIELD_EVERY, in_thread_if
from ..messages.parsing import Message, copy_message, text_of
from ..messages.tokens import are_large
from ..outgoing.prefix import RequestPrefix, request_digest
from ..outgoing.provider_messages import provider_messages, with_cache_hints
from ..rendering.renderer import RenderedMessage
from ..transcript.entry import Entry
from ..transcript.returned_views import form_hash
from .candidate import ViewRequest
from .view import View

_MAX_KEYS = 8  # providers and models whose last view is remembered
_MAX_FORMER = 8  # views that are remembered after another one took their place


@dataclass(frozen=True, slots=True)
class SentView:
    """The view of one request, for the meter, for events and for reports."""

    limits: TokenLimits  # of the request; its threshold is that of this view
    system: Sequence[RenderedMessage]
    messages: Sequence[RenderedMessage]  # of the view, after the system prompt
    counted: int  # tokens of all of them
    view: View  # the view they were taken from; it goes on growing
    prefix: RequestPrefix
    newest_seq: int  # highest seq of the entries that the view had then
    shared_prefix_tokens: int = 0  # of the messages at the start that the view before began with too
    reusable_tokens: int = 0  # the same of the view sent to its provider before, which may read them from its cache
    prefix_break: PrefixBreak | None = None  # why the provider cannot read all that it had before; None if it can
    compactions: int = 0  # accepted when it was handed out

    @property
    def all_messages(self) -> list[RenderedMessage]:
        return [*self.system, *self.messages]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the system prompt."""
        return sum(shown.tokens for shown in self.system)

    @property
    def key(self) -> Key:
        return self.prefix.key

    async def digest(self) -> str:
        """Return the hash of the request, to which the thinking of its answer may be bound."""
        new = (shown.message for shown in self.messages if not shown.is_hashed)
        is_long = len(self.messages) > YIELD_EVERY or are_large(new)
        return await in_thread_if(is_long, request_digest, self.messages, self.prefix)


def outgoing_messages(sent: SentView, *, merge: bool) -> list[Message]:
    """They are the caller's to change."""
    messages = [message for message, _ in provider_messages(sent.key, sent.all_messages, merge=merge)]
    return [copy_message(message) for message in with_cache_hints(messages, sent.key)]


def shared_prefix(before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> tuple[int, int]:
    """Return how many messages at the start are byte-identical, and their tokens."""
    count = tokens = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old.message != new.message:
            break
        count += 1
        tokens += new.tokens
    return count, tokens


class SentViews:
    def __init__(self) -> None:
        self.last: SentView | None = None
        # Why a view was handed out that does not begin with the one before it, until that is announced; None if each
        # did. An error is on the safe side: where the one before is not known any more, it did not.
        self.changed: PrefixBreak | None = None
        # Budget (tokens) and provider of the newest request, which `clear` keeps; None before the first.
        self.asked: tuple[int, Key] | None = None
        # Hashes of the texts of chapters that `start_over` dropped; no process has the same.
        self.dropped_chapters: set[int] = set()
        self.erased_forms: dict[int, list[tuple[int, ...]]] = {}  # of their other messages; see `HandedViews`
        self.by_key: dict[Key, SentView] = {}  # the last of each
        self._former: deque[SentView] = deque(maxlen=_MAX_FORMER)

    @property
    def handed_out(self) -> list[SentView]:
        """The views that a host may still have, the newest first: of each provider, and those before a compaction."""
        return [*reversed(self.by_key.values()), *reversed(self._former)]

    def break_before(self, request: ViewRequest | SentView, pause: Pause) -> PrefixBreak | None:
        """Return why the next request writes the whole prefix again, whatever its view; None if it need not."""
        before = self.by_key.get(request.key)
        if before is None and self.by_key:
            return PrefixBreak.PROVIDER_CHANGE
        if before is not None and _has_other_prompt(request, before):
            return PrefixBreak.SYSTEM_PROMPT
        if before is not None and before.prefix.digest != request.prefix.digest:
            return PrefixBreak.TOOLS
        return PrefixBreak.COLD if pause.outlasts(request.limits.cache_ttl) else None

    def note(self, sent: SentView, pause: Pause, compactions: int) -> SentView:
        """Note that a view is handed out; return it with what that means for its cached prefix."""
        before, last = self.by_key.get(sent.key), self.last
        whole = sent.all_messages
        shared, reusable_tokens = shared_prefix(before.all_messages if before else (), whole)
        shared_tokens = reusable_tokens
        if last is not before:
            shared_tokens = shared_prefix(last.all_messages if last else (), whole)[1]
        cause = None
        if before is not None and shared < len(before.system) + len(before.messages):
            cause = self.changed = _cause(sent, before, compactions)
        reason = self.break_before(sent, pause) or cause
        self.asked = sent.limits.budget, sent.key
        if before is not None and before.view is not sent.view:
            self._former.append(before)
        self.by_key.pop(sent.key, None)
        self.last = self.by_key[sent.key] = replace(
            sent,
            shared_prefix_tokens=shared_tokens,
            reusable_tokens=0 if reason in _WHOLE else reusable_tokens,
            prefix_break=reason,
            compactions=compactions,
        )
        if len(self.by_key) > _MAX_KEYS:
            del self.by_key[next(iter(self.by_key))]
            self.changed = self.changed or PrefixBreak.PROVIDER_CHANGE
        return self.last

    async def announce(self, hooks: Hooks | None, owner: object) -> None:
        """A handler's own view is announced with the next one that is no handler's. After a cancelled emission it is
        announced once more.
        """
        if inside_handler(owner):
            return
        reason, self.changed = self.changed, None  # first: another may come while handlers run
        if reason is not None:
            try:
                await emit(hooks, owner, PREFIX_CHANGED, {"reason": str(reason)})
            except BaseException:
                self.changed = self.changed or reason
                raise

    def start_over(self, shown: Iterable[RenderedMessage], erased: Collection[Entry], *, merge: bool) -> None:
        """Drop the views. Their chapters, those among the messages `shown`, and their messages that show one of the
        entries `erased`, as they were, otherwise than stored, stay known by their hashes.
        """
        for sent in self.handed_out:
            self._note_erased_forms(provider_messages(sent.key, sent.all_messages, merge=merge), erased)
        dropped = [*shown, *(one for sent in self.handed_out for one in sent.messages)]
        texts = [text_of(one.message.get("content")) for one in dropped if one.seq <= 0]
        self.dropped_chapters.update(hash(text.strip()) for text in texts)  # Python's hash of a text has a secret key
        self.clear()

    def _note_erased_forms(self, view: Iterable[tuple[Message, tuple[int, ...]]], entries: Collection[Entry]) -> None:
        erased = {entry.seq for entry in entries}
        stored = {form_hash(entry.message) for entry in entries}
        shown = [(text_of(message.get("content")), message, seqs) for message, seqs in view if seqs]
        texts = {text for text, _, seqs in shown if not erased.isdisjoint(seqs)}  # what is not alike is not hashed
        forms: dict[int, list[tuple[int, ...]]] = {}
        for text, message, seqs in shown:
            if text in texts:
                forms.setdefault(form_hash(message), []).append(seqs)
        for form, alike in forms.items():
            is_longest = len(alike) > len(self.erased_forms.get(form, ()))
            if form not in stored and not erased.isdisjoint(chain(*alike)) and is_longest:
                self.erased_forms[form] = alike

    def clear(self) -> None:
        if self.last is not None:
            self.changed = PrefixBreak.EDIT
        self.last = None
        self.by_key.clear()
        self._former.clear()


_WHOLE = {PrefixBreak.SYSTEM_PROMPT, PrefixBreak.TOOLS, PrefixBreak.COLD}  # nothing of the prefix is read


def _cause(sent: SentView, before: SentView, compactions: int) -> PrefixBreak:
    if _has_other_prompt(sent, before):
        return PrefixBreak.SYSTEM_PROMPT
    if compactions > before.compactions:
        return PrefixBreak.COMPACTION
    # Each budget has a checkpoint of its own, so its view may begin with other messages.
    return PrefixBreak.EDIT if sent.limits.budget == before.limits.budget else PrefixBreak.BUDGET


def _has_other_prompt(request: ViewRequest | SentView, before: SentView) -> bool:
    return [shown.message for shown in before.system] != [shown.message for shown in request.system]
