"""The law of the mirror, at any point of any change, after a kill or a power cut, and whatever another program writes.

- Nothing acknowledged is lost: the history is that before the change or that after it, and perhaps what the other
  program made of it.
- No edit is undone: what it removed is not read back.
- No erased text comes back.
- The mirror shows the history again, and the next change is clean.
"""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_context_core import Entry, MemoryStore, Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_core.transcript.redaction import REDACTED_TEXT
from amplifier_context_testing.contract.samples import entry
from tests.stores.jsonl.files import NAME, Disk, SameInode, fast_folder, using

SOAKING = settings().max_examples > 1_000  # see conftest.py
KINDS = ("append", "batch", "replace", "drop", "clear", "rewrite", "recount", "checkpoint")
THEIRS = "written by another program, é"


@dataclass(frozen=True)
class Plan:
    """Changes, the last of which a crash interrupts, and what happens then."""

    before: list[str]
    last: str
    call: int
    power: bool
    other: str
    copied: bool  # the folder is a copy: its text file is another than the one that the database knows
    seed: int


plans = st.builds(
    Plan,
    before=st.lists(st.sampled_from((*KINDS, "settle", "settle")), max_size=6).map(lambda kinds: ["append", *kinds]),
    last=st.sampled_from(KINDS),
    call=st.one_of(st.integers(0, 12), st.integers(0, 40)),
    power=st.booleans(),
    other=st.sampled_from(["nothing", "append", "rewrite", "restore"]),
    copied=st.sampled_from([False, False, True]),
    seed=st.integers(0, 2**32),
)


class Changes:
    """Makes the same random changes in several stores."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._seq = self._length = 0

    def draw(self, kind: str) -> tuple[Callable[[Store], Awaitable[object]], str]:
        """Return a change, for each of the stores, and the text that it erases."""
        length, size = self._length, self._chance.choice((10, 60, 300, 2_000))
        new = [self._entry(size) for _ in range({"append": 1, "batch": 4, "replace": 2}.get(kind, 0))]
        keep = self._chance.randint(0, length) if kind in ("replace", "drop") else 0
        seq = self._chance.randint(1, self._seq) if self._seq else 0

        async def recount(store: Store) -> None:
            found = await store.read("s", -3)
            await store.rewrite("s", [one._replace(tokens=one.tokens + 1) for one in found])

        match kind:
            case "append" | "batch":
                self._length += len(new)
                return lambda store: store.append("s", new), ""
            case "replace" | "drop" | "clear":
                self._length = keep + len(new)
                return lambda store: store.replace("s", keep, new), ""
            case "rewrite":
                erased = self._message(seq, REDACTED_TEXT)
                return lambda store: store.rewrite("s", [erased]), f"text {seq} of" if seq else ""
            case "recount":
                return recount, ""
            case "checkpoint":
                return lambda store: store.save_checkpoint("s", length, b"covers all"), ""
            case _:
                return lambda store: store.release("s"), ""

    def _entry(self, size: int) -> Entry:
        self._seq += 1
        return self._message(self._seq, f"text {self._seq} of " + "some length " * (size // 12))

    @staticmethod
    def _message(seq: int, text: str) -> Entry:
        stamp = {"timestamp": f"2026-01-01T00:00:00.{seq:03}+00:00"}
        return entry(seq, {"role": "user" if seq % 2 else "assistant", "content": text, "metadata": stamp})


async def _run(plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, store = MemoryStore(), JsonlStore(root / "now")
    disk = Disk(root / "now", root / "then")
    changes = Changes(plan.seed)
    await model.open("s")
    erased: set[str] = set()
    former: list[bytes] = []
    with using(monkeypatch, disk):
        for kind in plan.before:
            main = root / "now" / "s" / NAME
            former.append(main.read_bytes() if main.exists() else b"")
            change, text = changes.draw(kind)
            await change(store)
            await change(model)
            erased |= {text} - {""}
        before = await model.read("s")
        change, _ = changes.draw(plan.last)
        disk.at = disk.calls + plan.call
        await change(store)
        disk.at = -1
    if not disk.is_copied:
        disk.copy()
    await store.close()
    await change(model)
    after = await model.read("s")
    chance = random.Random(plan.seed)
    if plan.power:
        disk.cut_power(chance)
    theirs = _interfere(plan.other, root / "then" / "s" / NAME, chance, former)
    with using(monkeypatch, os if plan.copied else SameInode(disk)):
        await _check(root / "then", [before, after], theirs, erased)


def _interfere(kind: str, main: Path, chance: random.Random, former: list[bytes]) -> list[str] | None:
    """Write as the replaced module does, or restore a former file. Return the texts of the file afterwards, an empty
    list if a message was appended; None if nothing is to be read back.
    """
    if kind == "nothing" or not main.exists():
        return None
    if kind == "restore":
        if former:
            main.write_bytes(chance.choice(former))
        return None
    line = json.dumps({"role": "user", "content": THEIRS}) + "\n"
    if kind == "append":
        with main.open("a") as file:
            file.write(line)
        return []
    kept: list[Any] = []
    for one in main.read_bytes().split(b"\n"):
        with suppress(ValueError, TypeError):
            message = json.loads(one)
            kept += [message] if "content" in message and chance.random() < 0.7 else []
    main.write_text("".join(json.dumps(message) + "\n" for message in kept) + line)
    return [*(message["content"] for message in kept), THEIRS]


async def _check(root: Path, states: list[list[Entry]], theirs: list[str] | None, erased: set[str]) -> None:
    store = JsonlStore(root)
    await store.open("s")
    found = await store.read("s")
    texts = [str(one.message["content"]) for one in found]
    allowed = [[str(one.message["content"]) for one in state] for state in states]
    if theirs == []:
        allowed += [[*state, THEIRS] for state in allowed]
    elif theirs is not None:
        allowed += [theirs, *([*state, THEIRS] for state in allowed)]
    assert texts in allowed, f"{texts} is none of {allowed}"
    gone = {one.seq for one in states[0] if one.seq in {other.seq for other in states[1]}} - {one.seq for one in found}
    assert gone <= {one.seq for one in await store.archived("s")}, "what another program left out is in the archive"
    extent = await store.extent("s")
    if found or extent.last_seq:
        await store.append("s", [entry(extent.last_seq + 1, "the next one")])
        texts.append("the next one")
    assert [str(one.message["content"]) for one in await store.read("s")] == texts
    await store.close()
    main = root / "s" / NAME
    shown = [json.loads(line)["content"] for line in main.read_bytes().splitlines()] if main.exists() else []
    assert shown == texts
    for path in (root / "s").iterdir() if main.exists() else ():
        held = path.read_bytes()
        assert not [text for text in erased if text.encode() in held], f"{path.name} holds erased text"
    assert await store.verify("s") == []
    await store.close()


_FIXTURE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=2_000 if SOAKING else 100, suppress_health_check=_FIXTURE)
@given(plan=plans)
def test_a_crash_at_any_point_leaves_what_was_acknowledged(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    with fast_folder() as root:
        asyncio.run(_run(plan, root, monkeypatch))
