"""The figures of a manager: sums that can be added, and the shares made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from .cost import PLAIN, price
from .timing import quantile


@dataclass(slots=True)
class Figures:
    """What was counted; sums over requests, tokens unless said otherwise.

    Attributes:
        sessions: replayed.
        requests: views asked for.
        outgrown: requests whose full history exceeds the budget.
        invalid: requests that break a provider's rule.
        faulty: of those, with a violation the recording does not have itself.
        empty: requests without a message.
        human_lost: requests without the newest human message.
        prompt_lost: requests without the system prompt the session began with.
        over: requests over budget.
        cached: shared with the request before.
        fresh: the rest.
        block_cached: read from blocks, where the cache knows breakpoints only.
        breaks: requests that the one before was no prefix of.
        unlimited_cached: what the same requests share without any limit.
        unlimited_fresh: the rest of those.
        chapters: in messages that stand for others.
        targets: identifiers looked for.
        hits: of those, still in the view.
        located: of those, in a message as it was, or on a line that says where they came from.
        far_targets: identifiers looked for that were last mentioned far back.
        far_hits: of those, still in the view.
        far_located: of those, located.
        probes: reuse probes at requests whose history exceeds the budget.
        probes_found: of those, in the view at the moment of use.
        questions: with evidence.
        evidence: of those, with the evidence in the final view.
        answers: of those, with a gold answer in the final view.
        searched: questions put to the manager's search.
        search_found: of those, with the evidence in the first results.
        memory: bytes a session took at most; 0 when not measured.
        times: seconds of each request.
        examples: violations, the first few, with session and index.
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
    cached: int = 0
    fresh: int = 0
    block_cached: int = 0
    breaks: int = 0
    unlimited_cached: int = 0
    unlimited_fresh: int = 0
    chapters: int = 0
    targets: int = 0
    hits: int = 0
    located: int = 0
    far_targets: int = 0
    far_hits: int = 0
    far_located: int = 0
    probes: int = 0
    probes_found: int = 0
    questions: int = 0
    evidence: int = 0
    answers: int = 0
    searched: int = 0
    search_found: int = 0
    memory: int = 0
    times: list[float] = field(default_factory=list[float])
    examples: list[str] = field(default_factory=list[str])

    @classmethod
    def sum(cls, parts: Iterable[Figures]) -> Figures:
        """All of them together; memory is the largest."""
        total = cls()
        for part in parts:
            for one in fields(cls):
                if one.name == "memory":
                    total.memory = max(total.memory, part.memory)
                else:
                    setattr(total, one.name, getattr(total, one.name) + getattr(part, one.name))
        total.examples = total.examples[:5]
        return total

    @property
    def recall(self) -> float | None:
        return _share(self.hits, self.targets)

    @property
    def far_recall(self) -> float | None:
        return _share(self.far_hits, self.far_targets)

    @property
    def located_recall(self) -> float | None:
        return _share(self.located, self.targets)

    @property
    def far_located_recall(self) -> float | None:
        return _share(self.far_located, self.far_targets)

    @property
    def cost(self) -> float:
        """With fresh tokens at 1.25."""
        return price(self.cached, self.fresh)

    @property
    def cost_plain(self) -> float:
        """With fresh tokens at 1.0."""
        return price(self.cached, self.fresh, PLAIN)

    @property
    def cost_blocks(self) -> float:
        """With fresh tokens at 1.25, where the cache knows breakpoints only."""
        return price(self.block_cached, self.cached + self.fresh - self.block_cached)

    @property
    def cost_ratio(self) -> float | None:
        """To the same requests with an unlimited window."""
        return _share(self.cost, price(self.unlimited_cached, self.unlimited_fresh))

    @property
    def cost_ratio_plain(self) -> float | None:
        return _share(self.cost_plain, price(self.unlimited_cached, self.unlimited_fresh, PLAIN))

    @property
    def cost_ratio_blocks(self) -> float | None:
        return _share(self.cost_blocks, price(self.unlimited_cached, self.unlimited_fresh))

    @property
    def cached_share(self) -> float | None:
        return _share(self.cached, self.cached + self.fresh)

    @property
    def chapter_share(self) -> float | None:
        return _share(self.chapters, self.cached + self.fresh)

    @property
    def probe_share(self) -> float | None:
        return _share(self.probes_found, self.probes)

    @property
    def evidence_share(self) -> float | None:
        return _share(self.evidence, self.questions)

    @property
    def answer_share(self) -> float | None:
        return _share(self.answers, self.questions)

    @property
    def search_share(self) -> float | None:
        return _share(self.search_found, self.searched)

    @property
    def p50(self) -> float:
        """Seconds."""
        return quantile(self.times, 0.5)

    @property
    def p99(self) -> float:
        """Seconds."""
        return quantile(self.times, 0.99)

    def steady(self) -> dict[str, Any]:
        """Everything that does not depend on the machine, rounded; the same on every run."""
        counted = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("times", "examples", "memory")
        }
        shares = {
            name: None if (value := getattr(self, name)) is None else round(value, 6)
            for name in (
                "recall",
                "far_recall",
                "located_recall",
                "far_located_recall",
                "cost",
                "cost_plain",
                "cost_blocks",
                "cost_ratio",
                "cost_ratio_plain",
                "cost_ratio_blocks",
                "cached_share",
                "chapter_share",
                "probe_share",
                "evidence_share",
                "answer_share",
                "search_share",
            )
        }
        return {**counted, **shares}

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        machine = {"p50_ms": self.p50 * 1e3, "p99_ms": self.p99 * 1e3, "max_ms": max(self.times, default=0.0) * 1e3}
        return {
            **self.steady(),
            **{name: round(value, 3) for name, value in machine.items()},
            "memory_bytes": self.memory,
            "examples": self.examples,
        }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
