"""What providers read from and wrote into their prompt caches, by request, and why they could not read more.

It is computed from the usage that providers report, and from two facts about each view: how much of the prefix it
shares with the view before, and why it does not share all of it (`PrefixBreak`). A cache miss without such a reason is
reported as unknown. One wrong setting of a provider is recognised by its reports (`_cached_nothing`).

Memory is bounded: the newest requests, and sums. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from ..economics.cold_cache import PrefixBreak
from ..economics.meter import Key
from ..messages.usage import Usage, measured
from .sent_view import SentView

_MAX_REQUESTS = 100  # kept one by one
_MIN_CACHED = 4_096  # tokens: the longest prefix that a provider may leave uncached (docs/caching.md)
_MISSED = 0.5  # of the tokens that could have been read: less, and the cache was missed
_UNCACHED = 0.5  # of a conversation, neither read nor written: the provider placed no breakpoint in it
_ANTHROPIC = ("anthropic", "claude")

SETTING = "cache_infer_stability_from_history: false"
ADVICE = (
    "after a compaction the provider cached nothing of the conversation, and the next request paid for writing all of "
    f"it: set `{SETTING}` in the config of provider-anthropic (docs/caching.md)"
)


@dataclass(slots=True)
class CachedRequest:
    """One answered request, in tokens as its provider reported them."""

    key: Key
    number: int  # from 1
    tokens: int
    read: int
    written: int  # 0 where the provider does not report it
    expected: int  # what it could have read at least, as far as this package knows
    reason: PrefixBreak | None  # why the provider could not read all of the request before, or did not; None if it did
    conversation: int  # tokens of the view without its system prompt, estimated
    compactions: int  # of the session, accepted before it

    def as_json(self) -> dict[str, Any]:
        return {
            "request": self.number,
            "tokens": self.tokens,
            "read": self.read,
            "written": self.written,
            "expected": self.expected,
            "break": self.reason or "",
        }


class CacheHealth:
    """The caches of one session, since the process began; `advice` is what people should set otherwise."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.advice = ""
        self._requests = deque[CachedRequest](maxlen=_MAX_REQUESTS)
        self._sums = Counter[str](requests=0, tokens=0, read=0, written=0)
        self._breaks = Counter[PrefixBreak]()

    def record(self, sent: SentView, usage: Usage) -> bool:
        """Note what a provider reported for a view; return True if that shows a wrong setting for the first time."""
        units, tokens = sent.limits.units, measured(usage)
        self._sums["requests"] += 1
        made = CachedRequest(
            sent.key,
            self._sums["requests"],
            tokens,
            min(usage.cache_read_tokens, tokens),  # some providers leave what was read out of the input
            usage.cache_write_tokens,
            units.part(sent.reusable_tokens),
            sent.prefix_break,
            units.part(max(0, sent.counted - sent.prompt_tokens)),
            sent.compactions,
        )
        if made.reason is None and made.expected >= _MIN_CACHED and made.read < _MISSED * made.expected:
            made.reason = PrefixBreak.UNKNOWN
        former = [one for one in self._requests if one.key == sent.key][-2:]
        self._requests.append(made)
        self._sums.update(tokens=made.tokens, read=made.read, written=made.written)
        if made.reason is not None:
            self._breaks[made.reason] += 1
        name = " ".join(sent.key).lower()
        if len(former) < 2 or not any(part in name for part in _ANTHROPIC):
            return False
        older, before = former
        is_first = before.compactions > older.compactions  # after a compaction
        if not (is_first and _is_cached(older) and _cached_nothing(before) and _is_cached(made)):
            return False
        if before.reason is not None:
            self._breaks[before.reason] -= 1
        before.reason = PrefixBreak.PROVIDER_SETTING
        self._breaks[before.reason] += 1
        is_new, self.advice = not self.advice, ADVICE
        return is_new

    @property
    def line(self) -> str:
        count, tokens, read, written = self._sums.values()
        if not count:
            return "no usage reported yet"
        requests = f"{count:,} request{'s' if count > 1 else ''}"
        if not read and not written:
            return f"{requests}, no cache reads or writes reported"
        text = f"{read / max(1, tokens):.0%} of {tokens:,} tokens read from the cache in {requests}"
        breaks = ", ".join(f"{count:,} {reason}" for reason, count in self._breaks.most_common() if count > 0)
        text += f"; written again: {breaks}" if breaks else ""
        return f"{text}; {self.advice}" if self.advice else text

    def as_json(self) -> dict[str, Any]:
        """As docs/reference.md describes it."""
        return {
            "line": self.line,
            **self._sums,
            "breaks": {str(reason): count for reason, count in sorted(self._breaks.items()) if count > 0},
            "advice": self.advice,
            "recent": [request.as_json() for request in self._requests],
        }


def _cached_nothing(request: CachedRequest) -> bool:
    """True if a provider placed no breakpoint in a conversation. What a view changes would be written, not left out."""
    uncached = max(0, request.tokens - request.read - request.written)
    return uncached >= max(_MIN_CACHED, _UNCACHED * request.conversation)


def _is_cached(request: CachedRequest) -> bool:
    return request.read + request.written > 0 and not _cached_nothing(request)
