"""Thrash: an agent whose files do not all fit into the budget, and that reads again what an edit needs.

python -m lab.thrash [--context MANAGER ...] [--rounds 2000]

Recorded sessions cannot show what forgetting leads to: their agents read what they read. Here the agent is a loop of
this module. It edits 16 files of about 4,000 tokens, going round them by a seeded walk. Before each edit it looks for
the lines of the old text in the view; if one is missing it reads the file, as it is now, and then edits. So each
manager has the same edits, and the more the views forget, the more Reads come between them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

import click

from amplifier_context_core.view import shared_cache
from amplifier_context_testing.caches.any_prefix import AnyPrefix
from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.replay.transcripts import Context

from .compactions import is_compacted
from .managers import Manager, manager
from .working_memory import lines

FILES = 16
LINES = 236  # of a file: 4,000 tokens with their numbers
EDITED = 3  # lines of an old text
STEPS = (-1, 0, 1, 1)  # from one file to the next: forward by a quarter of a file in the mean
ROUNDS = 2_000  # edits
SHARES = (0.5, 0.75, 0.9)  # budgets, as shares of the files together
SEEDS = (1, 2, 3)
TASK = "Rename what the plan names, file by file, and check each."


@dataclass(slots=True)
class Outcome:
    """What became of runs, a seed at a budget each, all together.

    Attributes:
        re_reads: Reads of a file that was read before.
        blind: edits whose old text the view lacked right after a Read.
        price: of all requests with a cache of any prefix, in prices of a plain input token.
    """

    runs: int = 0
    requests: int = 0
    re_reads: int = 0
    blind: int = 0
    compactions: int = 0
    price: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def cells(self) -> list[str]:
        """Return the figures as text, in the order of `HEADS`: the mean of a run."""
        runs = max(1, self.runs)
        return [
            f"{self.re_reads / runs:,.0f}",
            f"{100 * self.compactions / max(1, self.requests):.2f}",
            f"{self.price / runs / 1e6:.2f} M",
            f"{self.requests / runs:,.0f}",
            f"{self.blind / runs:,.0f}",
        ]


HEADS = ("re-reads", "compactions per 100 requests", "cost", "requests", "blind edits")


class Files:
    """The files, edited as the agent goes; the seed is of their contents and of the walk."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._walk = random.Random(f"walk {seed}")
        self._versions = 0
        self.texts = [[self._line() for _ in range(LINES)] for _ in range(FILES)]

    def walk(self, edits: int) -> Iterator[tuple[int, int]]:
        file = 0
        for _ in range(edits):
            yield file, self._walk.randrange(LINES - EDITED + 1)
            file = (file + self._walk.choice(STEPS)) % FILES

    def edit(self, file: int, first: int) -> tuple[list[str], list[str]]:
        """Change lines of a file; return them before and after."""
        old = self.texts[file][first : first + EDITED]
        new = [self._line() for _ in old]
        self.texts[file][first : first + EDITED] = new
        return old, new

    def shown(self, file: int) -> str:
        return "\n".join(f"{number:6}→{line}" for number, line in enumerate(self.texts[file], 1))

    def _line(self) -> str:
        self._versions += 1
        name, other = (f"{self._random.choice(_VERBS)}_{self._random.choice(_NOUNS)}" for _ in range(2))
        return f"    {name}_{self._versions} = {other}({self._random.choice(_NOUNS)}, {self._random.randrange(1000)})"


_VERBS = ("load", "read", "merge", "check", "parse", "write", "split", "count", "find", "store", "build", "close")
_NOUNS = ("config", "table", "entry", "buffer", "header", "token", "result", "parser", "index", "query", "page", "user")


class Agent:
    """The agent: its conversation with one manager, at a budget in tokens."""

    def __init__(self, context: Context, budget: int, scale: TokenScale) -> None:
        self.outcome = Outcome(runs=1)
        self._context = context
        self._budget = budget
        self._scale = scale
        self._cache = AnyPrefix()
        self._lines = Memo(lambda message: frozenset(lines(scale.text(message))))
        self._before: Request | None = None
        self._calls = 0
        self._read: set[int] = set()

    async def work(self, files: Files, edits: int) -> None:
        await self._context.add_message({"role": "user", "content": TASK})
        for file, first in files.walk(edits):
            wanted = [line for text in files.texts[file][first : first + EDITED] for line in lines(text)]
            if not await self._sees(wanted):
                self.outcome.re_reads += file in self._read
                self._read.add(file)
                await self._call("Read", {"file_path": f"src/part_{file}.py"}, files.shown(file))
                self.outcome.blind += not await self._sees(wanted)
            old, new = files.edit(file, first)
            arguments = {"old_string": "\n".join(old), "new_string": "\n".join(new)}
            await self._call("Edit", {"file_path": f"src/part_{file}.py", **arguments}, "The file has been updated.")

    async def _sees(self, wanted: Sequence[str]) -> bool:
        """Send a request; True if its view has all these lines."""
        view = await self._context.get_messages_for_request(token_budget=self._budget)
        request = Request.of(view, self._scale)
        self.outcome.requests += 1
        self.outcome.price += self._cache.bill(request, 0.0).price
        self.outcome.compactions += is_compacted(self._before, request)
        self._before = request
        held = self._lines.each(request)
        return all(any(line in some for some in held) for line in wanted)

    async def _call(self, tool: str, arguments: Mapping[str, str], output: str) -> None:
        self._calls += 1
        name = f"call_{self._calls}"
        call = {"id": name, "tool": tool, "arguments": dict(arguments)}
        await self._context.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
        await self._context.add_message({"role": "tool", "tool_call_id": name, "content": output})


async def thrash(one: Manager, scale: TokenScale, *, edits: int, share: float, seed: int) -> Outcome:
    shared_cache.clear()
    files = Files(seed)
    budget = int(share * sum(scale.length(files.shown(file)) for file in range(FILES)))
    opened = await one.open(scale, budget)
    try:
        agent = Agent(opened.context, budget, scale)
        await agent.work(files, edits)
    finally:
        await opened.close()
    return agent.outcome


async def mean_of(one: Manager, scale: TokenScale, edits: int) -> Outcome:
    total = Outcome()
    for share in SHARES:
        for seed in SEEDS:
            total += await thrash(one, scale, edits=edits, share=share, seed=seed)
    return total


@click.command()
@click.option("--context", "contexts", multiple=True, default=("context-simple",), metavar="MANAGER")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True, help="Edits of a run.")
def main(contexts: tuple[str, ...], rounds: int) -> None:
    """Print the mean of all budgets and seeds for each manager, in Markdown."""
    scale = TokenScale()
    click.echo("| manager | " + " | ".join(HEADS) + " |\n| --- |" + " ---: |" * len(HEADS))
    for one in [manager(name) for name in contexts]:
        total = asyncio.run(mean_of(one, scale, rounds))
        click.echo("| " + " | ".join([one.label, *total.cells()]) + " |")


if __name__ == "__main__":
    main()
