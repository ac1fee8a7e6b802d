"""The figures of a manager: sums that can be added, and the shares made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from amplifier_context_testing.caches import Bill

from .compactions import After, summary
from .sentences import NONE_KEPT, Kept
from .shares import NOTHING, Share, quantile, rounded

PREFIX = "prefix"  # the cache that costs are reckoned with


@dataclass(slots=True)
class Figures:
    """Sums over requests; what is looked for (`recall` to `re_reading`) over outgrown requests only.

    Attributes:
        outgrown: requests whose full history exceeds the budget.
        invalid: requests that break a provider's rule.
        faulty: of these, those with a violation that the recording does not have itself.
        empty: requests without a message.
        human_lost: requests without the newest human message.
        over: requests over budget.
        breaks: requests that do not begin with the whole request before.
        chapters: tokens in messages that represent others.
        recall: identifiers sought and found in the view.
        located: those found in a recorded message, or on a line that names their origin.
        far, far_words: of identifiers and words last mentioned far back.
        lines: lines of calls' arguments that the history holds.
        edits: edits that need such lines, and those whose old text is whole in the view.
        re_reading: price of reading again what the other edits lack, in prices of a plain input token.
        compactions: what the view holds right after each.
        last: sentences in the last view of each session.
        all: sentences in each view, of the sentences written before it.
        bills, unlimited: tokens by price, for each cache; those of an unlimited window.
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
    over: int = 0
    breaks: int = 0
    chapters: int = 0
    recall: Share = NOTHING
    located: Share = NOTHING
    far: Share = NOTHING
    far_located: Share = NOTHING
    words: Share = NOTHING
    far_words: Share = NOTHING
    lines: Share = NOTHING
    edits: Share = NOTHING
    re_reading: float = 0.0
    compactions: list[After] = field(default_factory=list[After])
    last: Kept = NONE_KEPT
    all: Kept = NONE_KEPT
    bills: Mapping[str, Bill] = field(default_factory=dict[str, Bill])
    unlimited: Mapping[str, Bill] = field(default_factory=dict[str, Bill])
    times: list[float] = field(default_factory=list[float])
    examples: list[str] = field(default_factory=list[str])

    @classmethod
    def sum(cls, parts: Iterable[Figures]) -> Figures:
        total = cls()
        for part in parts:
            for one in fields(cls):
                held, more = getattr(total, one.name), getattr(part, one.name)
                if one.name in ("bills", "unlimited"):
                    setattr(total, one.name, {n: held.get(n, Bill()) + more.get(n, Bill()) for n in {**held, **more}})
                else:
                    setattr(total, one.name, held + more)
        total.examples = total.examples[:5]
        return total

    @property
    def tokens(self) -> int:
        return self._bill.tokens

    def ratio(self, cache: str = PREFIX) -> float | None:
        """Return what all requests cost to what they cost with an unlimited window, under the same cache."""
        return _over(self.bills.get(cache, Bill()).price, self.unlimited.get(cache, Bill()).price)

    @property
    def effective_ratio(self) -> float | None:
        """Return `ratio` with the price of reading again what edits lack."""
        return _over(self._bill.price + self.re_reading, self.unlimited.get(PREFIX, Bill()).price)

    @property
    def chapter_share(self) -> float | None:
        return _over(self.chapters, self.tokens)

    @property
    def _bill(self) -> Bill:
        return self.bills.get(PREFIX, Bill())

    def steady(self) -> dict[str, Any]:
        """Everything that does not depend on the machine, rounded; the same on every run."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            **{name: value for name, value in values.items() if isinstance(value, int)},
            **{name: value.as_json() for name, value in values.items() if isinstance(value, Share)},
            "after_compaction": summary(self.compactions),
            "last_view": self.last.as_json(),
            "all_views": self.all.as_json(),
            "caches": {
                name: {
                    "read": bill.read,
                    "written": bill.written,
                    "fresh": bill.fresh,
                    "cost": round(bill.price, 2),
                    "ratio": rounded(self.ratio(name)),
                }
                for name, bill in self.bills.items()
            },
            "tokens": self.tokens,
            "re_reading": round(self.re_reading, 2),
            "effective_ratio": rounded(self.effective_ratio),
            "chapter_share": rounded(self.chapter_share),
        }

    def as_json(self) -> dict[str, Any]:
        """`steady`, and the times (milliseconds)."""
        times = {f"p{share}_ms": round(1e3 * quantile(self.times, share / 100), 3) for share in (50, 99)}
        return {**self.steady(), **times, "examples": self.examples}


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole else None
