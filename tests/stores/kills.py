"""Kill writers at random moments and check what is left. `survive` does so to any store, by its URL.

A server process, warm and with one thread, forks a child for every kill. The child appends, replaces, forks and saves
checkpoints for as long as it lives. On a pipe it reports each call before and after it. After the kill the session must
be what was acknowledged, with or without the one call in progress, complete. The next append must succeed.

    async def test_nothing_acknowledged_is_lost(tmp_path):
        await survive(f"sqlite:{tmp_path}/kills.db", kills=200, seed=1)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from dataclasses import replace as but
from typing import IO, Any, NamedTuple, cast

from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import Checkable, Durability, Extent, Store, open_store
from amplifier_context_core.stores.codec import decode_entry
from amplifier_context_core.transcript.entry import Entry

PER_SESSION = 8  # kills of one session before the next one begins
Message = tuple[int, int]  # seq and size; they determine the message
Event = dict[str, Any]


class Fork(NamedTuple):
    """A fork that a killed child began, and what it has if it was made."""

    name: str
    history: tuple[Message, ...]
    is_made: bool


@dataclass(frozen=True)
class State:
    """A possible state of a session: its messages, and what its checkpoint covers, with the checkpoint's number."""

    history: tuple[Message, ...] = ()
    checkpoint: tuple[int, int] | None = None


class Struck(NamedTuple):
    """What a killed child had reported: the possible states of its session, the least acknowledged one first."""

    states: list[State]
    acknowledged: int  # calls
    last_seq: int  # the highest seq that was acknowledged
    in_flight: str  # the call in progress at the kill; empty if none
    forks: list[Fork]


Tamper = Callable[[str, random.Random], None]


def message_of(seq: int, size: int) -> Entry:
    """Return the message of a seq and a size: always the same one."""
    text = (f"m{seq} says " + f"{seq * 7919} é\n" * (size // 8 + 1))[:size]
    message = {"role": "user" if seq % 3 else "assistant", "content": text, "metadata": {"timestamp": f"t{seq}"}}
    return decode_entry("kills", seq, seq, size, json.dumps(message), {"session_id": "kills"})


def checkpoint_of(covered: int, number: int) -> bytes:
    """Return the bytes of a checkpoint."""
    return f"{covered} {number} ".encode() * (1 + number % 400)


# -- the child --------------------------------------------------------------------------------------------------------


async def _work(
    url: str,
    session_id: str = "s",
    durability: Durability = "fsync",
    *,
    seed: int,
    state: State | None = None,
    seq: int = 0,
    on_server: bool = False,
) -> None:
    """Change a session at random until killed, and report every call before it is made and after it returned."""
    chance, state = random.Random(seed), state or State()
    store = open_store(url, durability=durability)
    if on_server:
        await _opened(store, session_id)
    for number in range(300):
        length = len(state.history)
        kinds = {"append": 42, "batch": 22, "burst": 12, "replace": 12, "checkpoint": 12}
        kinds["fork"] = 12 if length else 0
        what = chance.choices(list(kinds), list(kinds.values()))[0]
        counts = {"append": 1, "checkpoint": 0, "fork": 0, "replace": chance.randrange(4)}
        count = counts.get(what, chance.randrange(2, 7))
        new = [(seq + 1 + step, _size(chance)) for step in range(count)]
        keep = max(0, length - chance.randrange(1, 6)) if what == "replace" else length
        call: Event = {"do": what, "new": new, "keep": keep, "number": number}
        if what == "replace" and keep < length and chance.random() < 0.4:
            call["new"] = [*new, state.history[-1]]  # the existing entry moves
        if what == "fork":
            call["fork"] = f"{session_id} {seed} {number}"
        say(call)
        await _do(store, session_id, call)
        say({"done": number})
        seq += count
        state = after(state, call)


async def _do(store: Store, session_id: str, call: Event) -> None:
    new = [message_of(seq, size) for seq, size in call["new"]]
    if call["do"] == "burst":  # concurrently, each as a call of its own

        async def one(entry: Entry) -> None:
            await store.append(session_id, [entry])
            say({"seq": entry.seq})

        await asyncio.gather(*map(one, new))
    elif call["do"] == "replace":
        await store.replace(session_id, call["keep"], new)
    elif call["do"] == "checkpoint":
        await store.save_checkpoint(session_id, call["keep"], checkpoint_of(call["keep"], call["number"]))
    elif call["do"] == "fork":
        await store.fork(session_id, call["fork"])
    else:
        await store.append(session_id, new)


async def _opened(store: Store, session_id: str) -> Extent:
    """Open a session, once the lease of a killed writer has expired."""
    while True:
        try:
            return await store.open(session_id)
        except SessionInUse:
            await asyncio.sleep(0.02)


def _size(chance: random.Random) -> int:
    return chance.choice((10, 60, 60, 400, 400, 3_000, 40_000 if chance.random() < 0.3 else 100))


def say(event: Event) -> None:
    """Report to the parent."""
    os.write(1, json.dumps(event).encode() + b"\n")


def change_session(request: Event) -> None:
    checkpoint = request.pop("checkpoint")
    history = tuple((seq, size) for seq, size in request.pop("history"))
    asyncio.run(_work(**request, state=State(history, tuple(checkpoint) if checkpoint else None)))


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


def after(state: State, call: Event) -> State:
    """Return the session after a complete call."""
    if call["do"] == "fork":
        return state
    if call["do"] == "checkpoint":
        return but(state, checkpoint=(call["keep"], call["number"]))
    history = (*state.history[: call["keep"]], *((seq, size) for seq, size in call["new"]))
    is_kept = state.checkpoint is not None and state.checkpoint[0] <= call["keep"]
    return State(history, state.checkpoint if is_kept else None)


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


def reported(events: list[Event], state: State = State(), last_seq: int = 0) -> Struck:
    """Return what a writer said of a session that was in this state."""
    acknowledged = burst = 0  # of the burst in progress, the appends that have ended
    call: Event = {}
    forks: list[Fork] = []
    for event in events:
        if "do" in event:
            call, burst = event, 0
            if call["do"] == "fork":
                forks.append(Fork(call["fork"], state.history, is_made=False))
        elif "seq" in event:
            burst += 1
            last_seq = max(last_seq, event["seq"])
        else:
            if call["do"] == "fork":
                forks[-1] = forks[-1]._replace(is_made=True)
            state = after(state, call)
            last_seq = max(last_seq, *(seq for seq, _ in call["new"]), 0)
            call, acknowledged = {}, acknowledged + 1
    states = [state]
    if call and call["do"] == "burst":
        parts = range(burst, len(call["new"]) + 1)
        states = [after(state, {**call, "new": call["new"][:count]}) for count in parts]
    elif call:
        states = [state, after(state, call)]
    return Struck(states, acknowledged + (burst if call else 0), last_seq, call.get("do", ""), forks)


async def survive(
    url: str,
    kills: int,
    *,
    seed: int,
    durability: Durability = "fsync",
    tamper: Tamper | None = None,
    longest: float = 0.03,
    on_server: bool = False,
) -> int:
    """Kill writers, and fail after each kill unless the session is intact. Return the number of acknowledged calls.

    Args:
        url: URL of the store, for the children and for the check.
        kills: Number of children to kill.
        seed: Seed of everything random, except for the machine's own pace.
        durability: Durability of the children's store.
        tamper: Called with the session id after each kill, to damage what was not acknowledged.
        longest: Maximum seconds of a child's life after its first call; more where that is too short to do much.
        on_server: True if killed writers leave leases, which must expire.
    """
    chance = random.Random(seed)
    acknowledged, state, last_seq = 0, State(), 0
    with closing(Victims()) as server:
        for number in range(kills):
            if number % PER_SESSION == 0:
                state, last_seq = State(), 0
            if acknowledged < 2 * number:  # on a busy machine little is done in such a short life
                longest *= 1.05
            session_id = f"killed {seed} {number // PER_SESSION}"
            request = {
                "url": url,
                "session_id": session_id,
                "durability": durability,
                "seed": chance.randrange(2**32),
                "history": state.history,
                "checkpoint": state.checkpoint,
                "seq": last_seq,
                "on_server": on_server,
            }
            events = await server.kill_one(request, chance.random() * longest if chance.random() < 0.9 else 0)
            struck = reported(events, state, last_seq)
            acknowledged += struck.acknowledged
            if tamper:
                tamper(session_id, chance)
            state, last_seq = await survived(url, session_id, struck)
            await _look_at_forks(url, struck.forks)
    return acknowledged


async def survived(url: str, session_id: str, struck: Struck) -> tuple[State, int]:
    """Open what a killed child left, compare it with the possible states, and append to it."""
    store = open_store(url)
    extent = await _opened(store, session_id)
    history = await store.read(session_id)
    where = f"{session_id}, killed in {struck.in_flight or 'nothing'}"
    seqs = [entry.seq for entry in history]
    fitting = [state for state in struck.states if _seqs(state) == seqs]
    assert fitting, f"{where}: seqs are {seqs}, not any of {[_seqs(state) for state in struck.states]}"
    for entry, (seq, size) in zip(history, fitting[0].history, strict=True):
        assert entry.message == message_of(seq, size).message, f"{where}: m{seq} reads differently"
    assert extent.length == len(history)
    assert extent.last_seq >= struck.last_seq, f"{where}: seqs would be given again"
    data = await store.load_checkpoint(session_id)
    allowed = {state.checkpoint and checkpoint_of(*state.checkpoint): state for state in fitting}
    assert data in allowed, f"{where}: the checkpoint is another one"
    state = allowed[data]
    last_seq = extent.last_seq + 1
    await store.append(session_id, [message_of(last_seq, 50)])
    assert [entry.seq for entry in await store.read(session_id)] == [*seqs, last_seq]
    await store.close()
    return but(state, history=(*state.history, (last_seq, 50))), last_seq


async def _look_at_forks(url: str, forks: list[Fork]) -> None:
    """Check that each fork is whole or not there, append to it, and delete it."""
    store = open_store(url)
    assert isinstance(store, Checkable)
    for name, expected, is_made in forks:
        length = (await _opened(store, name)).length
        assert length == len(expected) if is_made else length in (0, len(expected)), f"{name} has {length} messages"
        seqs = [seq for seq, _ in expected][:length]
        await store.append(name, [message_of(2**40, 50)])
        assert [entry.seq for entry in await store.read(name)] == [*seqs, 2**40]
        assert await store.verify(name) == []
        await store.delete(name)
    await store.close()


def _seqs(state: State) -> list[int]:
    return [seq for seq, _ in state.history]


if __name__ == "__main__":
    if sys.argv[1:]:  # a URL and a seed: a single writer, of session "s", for a recording
        asyncio.run(_work(sys.argv[1], seed=int(sys.argv[2])))
    else:
        serve(change_session)
