"""Kill writers at random moments and check what is left. `survive` does so to any store, by its URL.

A server process, warm and with one thread, forks a child for every kill. The child takes random steps on a session for
as long as it lives, each determined by a seed and its number, and reports each on a pipe before and after. After the
kill the store must hold what the reference store holds after the same steps, with or without the one in progress. The
next append must succeed.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import IO, Any, cast

from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import Checkable, MemoryStore, Store, open_store
from amplifier_context_testing.contract.fixtures import whole
from amplifier_context_testing.contract.reference import Pair, Step

PER_SESSION = 8  # kills of one session before the next one begins
STEPS = 1_000  # numbers of steps that each child has; the last one is the append after its kill
ALONE = {"a": "s", "b": "b", "c": "c"}  # sessions of a writer that is not killed
Event = dict[str, Any]
Tamper = Callable[[str, random.Random], None]


def step_of(seed: int, number: int) -> Step:
    """Return the step of a seed and a number: always the same one."""
    if number % STEPS == STEPS - 1:
        return Step("append", texts=["the next one"])
    chance = random.Random(f"{seed} {number}")
    what = chance.choices(("append", "replace", "move", "checkpoint", "fork"), (64, 9, 5, 12, 10))[0]
    count = 0 if what in ("checkpoint", "fork") else chance.choice((0, 1, 1, 1, 3, 6))
    sizes = chance.choices((10, 60, 400, 3_000, 40_000), (20, 40, 30, 8, 2), k=count)
    texts = [f"{number} says " + "é\n" * (size // 3) for size in sizes]
    share = chance.randrange(500, 1_001) if what in ("replace", "move") else 1_000
    return Step(what, "a", share, texts, f"{number} ".encode() * (number % 400), chance.choice("bc"))


async def pair_after(seed: int, steps: Sequence[int], names: dict[str, str]) -> Pair:
    """Return the reference store after steps."""
    pair = Pair(MemoryStore(), names)
    for number in steps:
        await pair.take(step_of(seed, number))
    return pair


# -- the child --------------------------------------------------------------------------------------------------------


async def _work(url: str, seed: int, names: dict[str, str], taken: Sequence[int], first: int, **options: Any) -> None:
    pair = await pair_after(seed, taken, names)
    pair.store = open_store(url, **options)
    for number in range(first, first + 100):
        say({"do": number})
        await pair.take(step_of(seed, number))
        say({"done": number})


def say(event: Event) -> None:
    """Report to the parent."""
    os.write(1, json.dumps(event).encode() + b"\n")


def serve(work: Callable[[Event], None]) -> None:
    """Fork a child for each line on standard input, which does this, and kill it at the next one."""
    for line in sys.stdin:
        request = json.loads(line)
        if "url" in request:
            open_store(request["url"])  # opens nothing, but loads the store's modules
        child = os.fork()
        if not child:
            try:
                work(request)
            except BaseException:  # noqa: BLE001 - sent to the parent, which fails the test
                say({"failed": traceback.format_exc()})
            os._exit(0)
        sys.stdin.readline()
        os.kill(child, signal.SIGKILL)  # the child was not waited for yet, so its id is not reused
        os.waitpid(child, 0)
        say({"dead": True})


# -- the parent -------------------------------------------------------------------------------------------------------


class Victims:
    """The server process of a module."""

    def __init__(self, *module: str) -> None:
        command = [sys.executable, "-W", "error", *(module or (__file__,))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._in = cast("IO[bytes]", self._process.stdin)
        self._out = cast("IO[bytes]", self._process.stdout)

    async def kill_one(self, request: Event, delay: float) -> list[Event]:
        """Let a child work for `delay` seconds from its first call on, kill it, and return what it reported.

        Without a delay it is killed at once, perhaps while it still reads what the one before left.
        """
        self._send(json.dumps(request))
        events = [await asyncio.to_thread(self._read)] if delay else []
        await asyncio.sleep(delay)
        self._send("kill")
        return [*events, *await asyncio.to_thread(lambda: list(iter(self._read, {"dead": True})))]

    def _read(self) -> Event:
        event = json.loads(self._out.readline())
        assert "failed" not in event, event["failed"]
        return event

    def _send(self, line: str) -> None:
        self._in.write(line.encode() + b"\n")
        self._in.flush()

    def close(self) -> None:
        self._in.close()
        self._process.wait(10)
        self._out.close()


async def survive(
    url: str, kills: int, *, seed: int, tamper: Tamper | None = None, longest: float = 0.03, **options: Any
) -> int:
    """Kill writers, and fail after each kill unless the session is intact. Return the number of acknowledged steps.

    A child lives for `longest` seconds after its first step at most; longer where that is too short to do much.
    `tamper` is called with the session id after each kill, to damage what was not acknowledged.
    """
    chance = random.Random(seed)
    acknowledged, taken = 0, list[int]()
    with closing(Victims()) as server:
        for number in range(kills):
            if number % PER_SESSION == 0:
                taken = []
            if acknowledged < 2 * number:  # on a busy machine little is done in such a short life
                longest *= 1.2
            names = {"a": f"killed {seed} {number // PER_SESSION}", **{one: f"{one} {seed} {number}" for one in "bc"}}
            request = {"url": url, "seed": seed, "names": names, "taken": taken, "first": number * STEPS, **options}
            events = await server.kill_one(request, chance.random() * longest if chance.random() < 0.9 else 0)
            acknowledged += sum("done" in event for event in events)
            if tamper:
                tamper(names["a"], chance)
            taken = await survived(url, seed, names, taken, events, number * STEPS + STEPS - 1)
    return acknowledged


async def survived(
    url: str, seed: int, names: dict[str, str], taken: list[int], events: list[Event], following: int
) -> list[int]:
    """Compare what a killed child left with what may be there, and take the next step. Return the steps on the session
    that were made.
    """
    store = open_store(url)
    assert isinstance(store, Store)
    for name in names.values():
        await _opened(store, name)
    done, begun = ([*taken, *(event[key] for event in events if key in event)] for key in ("done", "do"))
    problems: list[str] = []
    for steps in (done, begun):
        pair = await pair_after(seed, steps, names)
        pairs = [(await whole(store, name), await whole(pair.model, name)) for name in names.values()]
        problem = "; ".join(filter(None, (ours.differs(theirs) for ours, theirs in pairs)))
        if not problem:
            break
        problems.append(problem)
    else:
        raise AssertionError(f"{names['a']}, killed in {step_of(seed, begun[-1])}: {problems}")
    pair.store = store
    await pair.take(step_of(seed, following))
    await pair.compare(archives=True, name="a")
    assert isinstance(store, Checkable)
    for name in names.values():
        assert await store.verify(name) == []
    await store.close()
    return [one for one in [*steps, following] if step_of(seed, one).what != "fork"]


async def _opened(store: Store, session_id: str) -> None:
    """Open a session, once the lease of a killed writer has expired."""
    while True:
        try:
            await store.open(session_id)
            return
        except SessionInUse:
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1:]:  # a URL and a seed: a single writer, for a recording
        asyncio.run(_work(sys.argv[1], int(sys.argv[2]), ALONE, (), 0))
    else:
        serve(lambda request: asyncio.run(_work(**request)))
