"""The views that were handed out last, one for each provider and model: what each may still have in its cache.

Not locked: the `Compactor` lets one task in at a time, but for `announce`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..economics.cold_cache import Pause, PrefixBreak
from ..economics.meter import Key
from ..events import PREFIX_CHANGED, Hooks, emit, inside_handler
from ..messages.parsing import text_of
from ..outgoing.prefix import RequestPrefix
from ..rendering.renderer import RenderedMessage
from .sent_view import SentView, shared_prefix

_MAX_KEYS = 8  # providers and models whose last view is remembered
_MAX_FORMER = 8  # views that are remembered after another one took their place


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
        self._by_key: dict[Key, SentView] = {}
        self._former: deque[SentView] = deque(maxlen=_MAX_FORMER)

    @property
    def handed_out(self) -> list[SentView]:
        """The views that a host may still have, the newest first: of each provider, and those before a compaction."""
        return [*reversed(self._by_key.values()), *reversed(self._former)]

    def last_to(self, key: Key) -> SentView | None:
        return self._by_key.get(key)

    def break_before(
        self, prefix: RequestPrefix, system: Sequence[RenderedMessage], pause: Pause, cache_ttl: int
    ) -> PrefixBreak | None:
        """Return why the next request writes the whole prefix again, whatever its view; None if it need not.
        `cache_ttl`: seconds after which the provider forgets a prefix; 0 for never.
        """
        before = self._by_key.get(prefix.key)
        if before is None and self._by_key:
            return PrefixBreak.PROVIDER_CHANGE
        if before is not None and [shown.message for shown in before.system] != [shown.message for shown in system]:
            return PrefixBreak.SYSTEM_PROMPT
        if before is not None and before.prefix.digest != prefix.digest:
            return PrefixBreak.TOOLS
        return PrefixBreak.COLD if pause.outlasts(cache_ttl) else None

    def note(self, sent: SentView, pause: Pause, compactions: int) -> SentView:
        """Note that a view is handed out; return it with what that means for its cached prefix."""
        before, last = self._by_key.get(sent.key), self.last
        shared, reusable_tokens = _shared(before, sent)
        shared_tokens = reusable_tokens if before is last else _shared(last, sent)[1]
        cause = None
        if before is not None and shared < len(before.system) + len(before.messages):
            cause = self.changed = _cause(sent, before, compactions)
        reason = self.break_before(sent.prefix, sent.system, pause, sent.limits.cache_ttl) or cause
        self.asked = sent.limits.budget, sent.key
        if before is not None and before.view is not sent.view:
            self._former.append(before)
        self._by_key.pop(sent.key, None)
        self.last = self._by_key[sent.key] = replace(
            sent,
            shared_prefix_tokens=shared_tokens,
            reusable_tokens=0 if reason in _WHOLE else reusable_tokens,
            prefix_break=reason,
            compactions=compactions,
        )
        if len(self._by_key) > _MAX_KEYS:
            del self._by_key[next(iter(self._by_key))]
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

    def start_over(self, shown: Iterable[RenderedMessage]) -> None:
        """Drop the views. Their chapters, and those among the messages `shown`, stay known by their hashes."""
        dropped = [*shown, *(one for sent in self.handed_out for one in sent.messages)]
        texts = [text_of(one.message.get("content")) for one in dropped if one.seq <= 0]
        self.dropped_chapters.update(hash(text.strip()) for text in texts)  # Python's hash of a text has a secret key
        self.clear()

    def clear(self) -> None:
        if self.last is not None:
            self.changed = PrefixBreak.EDIT
        self.last = None
        self._by_key.clear()
        self._former.clear()


_WHOLE = {PrefixBreak.SYSTEM_PROMPT, PrefixBreak.TOOLS, PrefixBreak.COLD}  # nothing of the prefix is read


def _cause(sent: SentView, before: SentView, compactions: int) -> PrefixBreak:
    if [shown.message for shown in before.system] != [shown.message for shown in sent.system]:
        return PrefixBreak.SYSTEM_PROMPT
    if compactions > before.compactions:
        return PrefixBreak.COMPACTION
    # Each budget has a checkpoint of its own, so its view may begin with other messages.
    return PrefixBreak.EDIT if sent.limits.budget == before.limits.budget else PrefixBreak.BUDGET


def _shared(before: SentView | None, sent: SentView) -> tuple[int, int]:
    """Return how many messages at the start of a request are those of another one, and their tokens."""
    if before is None:
        return 0, 0
    return shared_prefix([*before.system, *before.messages], [*sent.system, *sent.messages])
