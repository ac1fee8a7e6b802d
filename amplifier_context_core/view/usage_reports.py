"""What providers report of requests: which of their responses is the next answer, and how their prompt caches do.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from ..economics.cold_cache import PrefixBreak
from ..economics.meter import MIN_RATIO, Key
from ..messages.usage import Response, Usage, measured, usage_of
from .sent_view import SentView

_MAX_REPORTS = 64  # kept between two answers; an agent makes few side calls
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


class UsageReports:
    """The request that the next answer is to, and which of the responses that providers report is that answer.

    It is the view handed out last. But once a provider reports that it was sent a request, views that others ask for
    meanwhile (a host's page, a side call) do not take its place.
    """

    def __init__(self) -> None:
        self.request: SentView | None = None  # its view; None before the first view and once it is answered
        self.requested_at: str | None = None  # ISO 8601, UTC: when it was handed out; None without a request
        self.step = 0  # of the usage that was announced last; see `window_usage`
        self._answered: tuple[int, int] | None = None  # compactions when it was sent, and its tokens
        self._newest: tuple[SentView, str] | None = None
        self._is_sent = False  # a provider has the request, and its answer is still to come
        self._owned: tuple[Usage | None] | None = None  # what the loop itself reported of the view's request
        self._reports: list[Response] = []

    def begin(self, view: SentView, now: str) -> None:
        """Reports of it are collected unless a provider works on another one."""
        self._newest = view, now
        if not self._is_sent:
            self._expect_newest()

    def sent(self) -> None:
        """The provider was sent the view handed out last."""
        self._expect_newest()
        self._is_sent = self.request is not None

    def given_up(self) -> None:
        """The request may have no answer: it failed, or the conversation went on without one."""
        if self._is_sent:
            self._is_sent = False
            self._expect_newest()

    def _expect_newest(self) -> None:
        if self._newest is not None and self._newest[0] is not self.request:
            self.request, self.requested_at = self._newest
            self._owned = None
            self._reports.clear()

    def own(self, *, input_tokens: object, cache_write_tokens: object = 0) -> bool:
        """Note what the loop itself reported of the view's request; return False if its figures make no sense.
        `input_tokens`: None for a request that was refused; `cache_write_tokens` are a part of them.
        """
        usage = usage_of({"input_tokens": input_tokens, "cache_write_tokens": cache_write_tokens})
        if usage is None:
            self.given_up()
        if self.request is not None:
            self._owned = (usage,)
        return usage is not None

    def reported(self, compactions: int) -> int | None:
        """Return the tokens that the provider reported last; None if that was before the newest compaction."""
        return self._answered[1] if self._answered and self._answered[0] == compactions else None

    def end(self, response: Response | None = None) -> Usage | None:
        """The answer came: later reports belong to other requests. Return its usage: the loop's own report goes before
        the matching response.
        """
        usage = self._owned[0] if self._owned is not None else response.usage if response else None
        if usage is not None and self.request is not None:
            self._answered = self.request.compactions, measured(usage)
        self.request = self.requested_at = self._newest = None
        self._is_sent = False
        self._reports.clear()
        return usage

    def clear(self) -> None:
        self.end()
        self._answered = None

    def record(self, response: Response) -> None:
        if self.request is not None and len(self._reports) < _MAX_REPORTS:
            self._reports.append(response)

    def match(self, counted: int, expected: float) -> Response | None:
        """Return the response to the view; None if there is none.

        With side calls in between, it is the nearest to the size that is expected of the view. A response that reports
        far fewer tokens than the view has, as `counted` here, was a side call, even if it is the only one.
        """

        def distance(response: Response) -> float:
            return float("inf") if response.usage is None else abs(measured(response.usage) - expected)

        candidates = [one for one in self._reports if one.usage is None or measured(one.usage) >= MIN_RATIO * counted]
        return min(candidates, key=distance, default=None)


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
        figures = {name: getattr(self, name) for name in ("tokens", "read", "written", "expected")}
        return {"request": self.number, **figures, "break": self.reason or ""}


class CacheHealth:
    """What providers read from and wrote into their prompt caches, by request since the process began, and why they
    could not read more; `advice` is what people should set otherwise.

    It is computed from the usage that providers report, and from two facts about each view: how much of the prefix it
    shares with the view before, and why it does not share all of it (`PrefixBreak`). A cache miss without such a reason
    is reported as unknown. One wrong setting of a provider is recognised by its reports (`_cached_nothing`). Memory is
    bounded: the newest requests, and sums.
    """

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
