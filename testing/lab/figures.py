"""The figures of a manager: sums that can be added, and the shares made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .caches import Bill
from .compactions import After, summary
from .sentences import NONE_KEPT, Kept
from .shares import NOTHING, Share, rounded
from .timing import quantile

PREFIX = "prefix"  # the cache that `cost` is reckoned with


@dataclass(slots=True)
class Figures:
    """The figures of a manager: sums over requests.

    Attributes:
        sessions: replayed sessions.
        requests: requested views.
        outgrown: requests whose full history exceeds the budget.
        invalid: requests that break a provider's rule.
        faulty: invalid requests with a violation that the recording does not have itself.
        empty: requests without a message.
        human_lost: requests without the newest human message.
        prompt_lost: requests without the system prompt the session began with.
        over: requests over budget.
        breaks: requests that do not begin with the whole request before.
        chapters: tokens in messages that represent others.
        recall: identifiers sought and found in the view; like the next eight figures, over outgrown requests.
        located: found identifiers in a recorded message, or on a line that names their origin.
        far: identifiers last mentioned far back.
        far_located: far identifiers that were located.
        spelled: identifiers found without the rule of roots.
        far_spelled: far identifiers found without it.
        words: plain words sought and found.
        far_words: plain words last used far back.
        probes: reuse probes.
        lines: lines of calls' arguments that the history holds; like the next figure, over outgrown requests.
        edits: edits that need such lines, and those whose old text is whole in the view.
        re_reading: price of reading again what the other edits lack, in prices of a plain input token.
        re_reads: files read again soon after the view lost what was read.
        compactions: what the view holds right after each.
        reach: identifiers that the view lacks, and those of them that one search of the recall tool brings.
        oracle: the same with the identifier as the query.
        last: sentences in the last view of each session.
        all: sentences in each view, of the sentences written before it.
        evidence: questions with the evidence in the final view.
        answers: questions with a gold answer in the final view.
        search: questions put to the manager's search, with the evidence in the first results.
        bills: tokens by price, for each cache.
        unlimited: bills of the same requests with an unlimited window.
        memory: maximal bytes of a session; 0 if not measured.
        times: seconds of each request.
        examples: the first violations, with session and index.
    """

    sessions: int = 0
    requests: int = 0
    outgrown: int = 0
    invalid: int = 0
    faulty: int = 0
    empty: int = 0
    human_lost: int = 0
    prompt_lost: int = 0
    over: int = 0
    breaks: int = 0
    chapters: int = 0
    recall: Share = NOTHING
    located: Share = NOTHING
    far: Share = NOTHING
    far_located: Share = NOTHING
    spelled: Share = NOTHING
    far_spelled: Share = NOTHING
    words: Share = NOTHING
    far_words: Share = NOTHING
    probes: Share = NOTHING
    lines: Share = NOTHING
    edits: Share = NOTHING
    re_reading: float = 0.0
    re_reads: int = 0
    compactions: list[After] = field(default_factory=list[After])
    reach: Share = NOTHING
    oracle: Share = NOTHING
    last: Kept = NONE_KEPT
    all: Kept = NONE_KEPT
    evidence: Share = NOTHING
    answers: Share = NOTHING
    search: Share = NOTHING
    bills: Mapping[str, Bill] = field(default_factory=dict[str, Bill])
    unlimited: Mapping[str, Bill] = field(default_factory=dict[str, Bill])
    memory: int = 0
    times: list[float] = field(default_factory=list[float])
    examples: list[str] = field(default_factory=list[str])

    @classmethod
    def sum(cls, parts: Iterable[Figures]) -> Figures:
        """Return all of them together; memory is the largest."""
        total = cls()
        for part in parts:
            for one in fields(cls):
                held, more = getattr(total, one.name), getattr(part, one.name)
                if one.name == "memory":
                    total.memory = max(held, more)
                elif one.name in ("bills", "unlimited"):
                    setattr(total, one.name, {n: held.get(n, Bill()) + more.get(n, Bill()) for n in {**held, **more}})
                else:
                    setattr(total, one.name, held + more)
        total.examples = total.examples[:5]
        return total

    @property
    def tokens(self) -> int:
        """Return all tokens sent."""
        return self._bill.tokens

    @property
    def cost(self) -> float:
        """Return what all requests cost with a cache of any prefix, in prices of a plain input token."""
        return self._bill.price

    def ratio(self, cache: str = PREFIX) -> float | None:
        """Return what all requests cost to what they cost with an unlimited window, under the same cache."""
        return _over(self.bills.get(cache, Bill()).price, self.unlimited.get(cache, Bill()).price)

    @property
    def effective_ratio(self) -> float | None:
        """Return `ratio` with the price of reading again what edits lack."""
        return _over(self.cost + self.re_reading, self.unlimited.get(PREFIX, Bill()).price)

    @property
    def plain_ratio(self) -> float | None:
        """Return the same with a cache of any prefix where writing costs nothing extra."""
        return _over(self._bill.plain_price, self.unlimited.get(PREFIX, Bill()).plain_price)

    @property
    def cached_share(self) -> float | None:
        """Share of the tokens that a cache of any prefix holds."""
        return _over(self._bill.read, self.tokens)

    @property
    def chapter_share(self) -> float | None:
        """Share of the tokens that chapters take."""
        return _over(self.chapters, self.tokens)

    @property
    def p50(self) -> float:
        """Seconds."""
        return quantile(self.times, 0.5)

    @property
    def p99(self) -> float:
        """Seconds."""
        return quantile(self.times, 0.99)

    @property
    def _bill(self) -> Bill:
        return self.bills.get(PREFIX, Bill())

    def steady(self) -> dict[str, Any]:
        """Everything that does not depend on the machine, rounded; the same on every run."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        counts = {name: value for name, value in values.items() if isinstance(value, int) and name != "memory"}
        shares = {name: value.as_json() for name, value in values.items() if isinstance(value, Share)}
        caches = {
            name: {
                "read": bill.read,
                "written": bill.written,
                "fresh": bill.fresh,
                "cost": round(bill.price, 2),
                "ratio": rounded(self.ratio(name)),
            }
            for name, bill in self.bills.items()
        }
        return {
            **counts,
            **shares,
            "after_compaction": summary(self.compactions),
            "last_view": self.last.as_json(),
            "all_views": self.all.as_json(),
            "caches": caches,
            "tokens": self.tokens,
            "re_reading": round(self.re_reading, 2),
            "effective_ratio": rounded(self.effective_ratio),
            "plain_ratio": rounded(self.plain_ratio),
            "cached_share": rounded(self.cached_share),
            "chapter_share": rounded(self.chapter_share),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        machine = {"p50_ms": self.p50 * 1e3, "p99_ms": self.p99 * 1e3, "max_ms": max(self.times, default=0.0) * 1e3}
        return {
            **self.steady(),
            **{name: round(value, 3) for name, value in machine.items()},
            "memory_bytes": self.memory,
            "examples": self.examples,
        }


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole else None
