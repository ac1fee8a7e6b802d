"""Damaged databases by the thousand: the damage done to a file, by seed, and what must be true of it afterwards.

`build` makes a database of several sessions. `damage` changes some bytes of it. `try_out` uses it as a host and as the
command line would. It raises `AssertionError` if a promise is broken:

- every call returns a value or raises `StoreError`,
- no message differs from what was stored, and none comes twice or in another order,
- a session that held messages never opens shorter than it was without a report,
- no session is listed twice, and new messages come after the old ones,
- `repair` repairs what `verify` reports, or raises `StoreError` with advice; `verify` reports what is refused,
- an erased text is in no byte of any file.
"""

import random
import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from amplifier_context_core import Entry, StoreError
from amplifier_context_core.stores import Repair
from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry

T = TypeVar("T")

COMMAND = "python -m amplifier_context_core.repair"  # the command that an error of a damaged database names
PAGE = 4096


async def filled(path: Path, count: int = 300) -> None:
    """Make a database of two sessions, one of them edited; closed."""
    store = SqliteStore(path, durability="none")
    await store.append("s", entries(1, count))
    await store.append("t", entries(1, 20, session_id="t"))
    await store.replace("t", 15, [])
    await store.save_checkpoint("s", 5, b"five")
    await store.save_checkpoint("t", 15, b"fifteen")
    await store.close()


def change(path: Path, *statements: str) -> None:
    """Change a database behind the back of its store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def flip(path: Path, start: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + length] = bytes(byte ^ 0xDA for byte in data[start : start + length])
    path.write_bytes(data)


def overwritten_page(path: Path, table: str, number: int) -> None:
    """Change all bytes of a page of a table or an index."""
    flip(path, _offsets(path, table)[number], PAGE)


def emptied(path: Path, name: str) -> None:
    """Empty a table or an index of one page: a valid page, with none of its rows to be found."""
    (start,) = _offsets(path, name)
    data = bytearray(path.read_bytes())
    data[start + 1 : start + 8] = bytes(4) + PAGE.to_bytes(2, "big") + bytes(1)
    path.write_bytes(data)


def _offsets(path: Path, name: str) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno", (name,)).fetchall()
    return [(page - 1) * PAGE for (page,) in rows]


LENGTHS = {"plain": 20, "edited": 17, "fork": 9, "large": 6}  # the sessions of the database
SECRET = "correct-horse-battery-staple"  # in the archive of one session
Sessions = dict[str, dict[int, Entry]]  # for each session its entries by seq, those of its archive included


async def build(path: Path, *, erased: bool) -> tuple[bytes, Sessions]:
    """Make the database. With `erased`, a message is erased, so that a VACUUM rewrites the whole file."""
    store = SqliteStore(path, durability="none")
    await store.append("plain", entries(1, 20, session_id="plain"))
    await store.append("edited", entries(1, 11, session_id="edited"))
    await store.append("edited", [entry(seq, f"{SECRET} {seq}", session_id="edited") for seq in range(12, 15)])
    await store.replace("edited", 10, [entry(seq, session_id="edited") for seq in range(15, 22)])
    await store.append("large", [entry(seq, f"{seq} " * 4_000, session_id="large") for seq in range(1, 7)])
    await store.fork("plain", "fork", 9)
    await store.save_checkpoint("plain", 12, b"twelve")
    await store.save_checkpoint("edited", 17, b"seventeen" * 900)
    await store.search("plain", "module", 3)
    if erased:
        await store.rewrite("plain", [entry(3, "(erased)", session_id="plain")])
    sessions = {name: {one.seq: one for one in await store.read(name)} for name in LENGTHS}
    sessions["edited"] |= {one.seq: one for one in await store.archived("edited")}
    await store.close()
    return path.read_bytes(), sessions


def damage(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return the kind of damage, and the bytes of a damaged file."""
    changed = bytearray(data)
    page = chance.randrange(len(data) // PAGE) * PAGE
    kind = chance.choice(("bit", "bit", "header", "bits", "bytes", "sector", "page", "another page", "cut"))
    match kind:
        case "bit":
            changed[page + chance.randrange(PAGE)] ^= 1 << chance.randrange(8)
        case "header":
            changed[page + chance.randrange(12 if page else 120)] ^= 1 << chance.randrange(8)
        case "bits":
            for _ in range(chance.randrange(2, 6)):
                changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "bytes":
            start, length = chance.randrange(len(data)), chance.choice((4, 16, 100, 600))
            changed[start : start + length] = chance.randbytes(len(changed[start : start + length]))
        case "sector":
            start = page + chance.randrange(PAGE // 512) * 512
            changed[start : start + 512] = bytes(512)
        case "page":
            changed[page : page + PAGE] = bytes(PAGE)
        case "another page":
            other = chance.randrange(len(data) // PAGE) * PAGE
            changed[page : page + PAGE] = data[other : other + PAGE]
        case _:  # a cut, anywhere or between pages; not to nothing: an empty file is an empty database
            del changed[chance.choice((max(page, PAGE), chance.randrange(1, len(data)))) :]
    return kind, bytes(changed)


class Trial:
    def __init__(self, path: Path, damaged: bytes, sessions: Sessions) -> None:
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(damaged)
        self._store = SqliteStore(path, durability="none", busy=0.2)
        self._path, self._sessions = path, sessions
        self._reports: list[Repair] = []
        self.refused: list[str] = []

    async def call(self, call: Awaitable[T]) -> T | None:
        """Return the result of a call; None if it raises the error that it may raise."""
        try:
            return await call
        except StoreError as problem:
            self.refused.append(str(problem))
            return None

    async def use(self) -> str:
        """Use all of it like a host. Return "refused", "reported" or "sound"."""
        for name in self._sessions:
            await self._use_session(name)
        names = [info.session_id for info in await self.call(self._store.sessions()) or ()]
        assert len(set(names)) == len(names), f"listed twice: {names}"
        for name in self._sessions:
            await self.call(self._store.search(name, "module", 5))
        await self.call(self._store.close())
        return "refused" if self.refused else "reported" if self._reports else "sound"

    async def _use_session(self, name: str) -> None:
        store, known, reports, refused = self._store, self._sessions[name], list[Repair](), len(self.refused)
        extent = await self.call(store.open(name, reports.append))
        await self.call(store.load_checkpoint(name))
        self._same(name, await self.call(store.find(name, list(known))))
        read = await self.call(store.read(name))
        history = self._same(name, read)
        if read is not None and len(read) < LENGTHS[name] and extent is not None:
            assert reports, f"{name} has {len(read)} of {LENGTHS[name]} messages, unreported"
        archived = self._same(name, await self.call(store.archived(name)))
        if refused == len(self.refused) and not reports:
            gone = set(known) - {one.seq for one in [*history, *archived]}
            assert not gone, f"{name}: {gone} vanished"
        self._reports += reports
        if extent is not None:
            new = [entry(max(100, extent.last_seq + 1), session_id=name)]
            await self.call(store.append(name, new))
            if refused == len(self.refused) and not reports:
                newest = await self.call(store.read(name, -1))
                assert newest in (new, None), f"{name}: {[one.seq for one in newest or ()]} in place of {new[0].seq}"

    def _same(self, name: str, found: list[Entry] | None) -> list[Entry]:
        seqs = [one.seq for one in found or ()]
        assert len(set(seqs)) == len(seqs), f"{name}: given twice: {seqs}"
        for one in found or ():
            assert one == self._sessions[name].get(one.seq), f"{name}: {one.mark} is altered"
        return found or []

    async def repair(self) -> bool:
        """Find damage and repair it, like the command line. Return True if something was found."""
        found = [await self.call(self._store.verify(name)) for name in self._sessions]
        if any(found):
            try:
                await self._store.repair(None)
            except StoreError as problem:
                assert "restore a backup" in str(problem), f"no way out is named: {problem}"  # noqa: PT017
            else:
                left = [await self.call(self._store.verify(name)) for name in self._sessions]
                assert not any(left), f"left: {left}"
        await self.call(self._store.close())
        return any(found)

    async def erase(self) -> None:
        """Erase archived messages, if they can be found."""
        store, known, seqs = self._store, self._sessions["edited"], (12, 13, 14)
        await self.call(store.open("edited", self._reports.append))
        archived = {one.seq: one for one in await self.call(store.archived("edited")) or ()}
        if not self.refused and all(archived.get(seq) == known[seq] for seq in seqs):
            await self.call(store.rewrite("edited", [entry(seq, "(erased)", session_id="edited") for seq in seqs]))
            is_erased = not self.refused
            await self.call(store.close())
            for file in self._path.parent.iterdir() if is_erased and not self.refused else ():
                assert SECRET.encode() not in file.read_bytes(), f"what was erased is still in {file.name}"
        await self.call(store.close())


async def try_out(path: Path, damaged: bytes, sessions: Sessions) -> str:
    """Use a damaged database; repair a copy of it; erase messages of another copy. Return how it could be used.

    Raises:
        AssertionError: A promise is broken.
    """
    used = await Trial(path, damaged, sessions).use()
    is_found = await Trial(path, damaged, sessions).repair()
    await Trial(path, damaged, sessions).erase()
    assert used != "refused" or is_found, "what is refused is not reported"
    return used
