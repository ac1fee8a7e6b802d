"""Power cuts, replayed from the system calls of a writer that `strace` recorded.

`record` runs a program under strace. `Trace.cut` writes what a power cut after any of its calls may leave: of each file
what was synced, and of each later write any of its sectors. A new file, a new name and a removed one reach the disk
when their folder is synced; before that each may or may not have. A file that is renamed has one of both names.
"""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.stores import kills

SECTOR = 512  # bytes that a disk writes whole or not at all
_CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,unlinkat,rename"
_LINE = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. \w+ resumed>)?(?P<rest>.*?)(?P<unfinished> <unfinished \.\.\.>)?\n")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+).*")
_PATH = re.compile(r"<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"')


class Call(NamedTuple):
    """A system call that succeeded."""

    name: str
    path: str  # of the file, or of the folder that is synced
    data: bytes = b""  # that are written, or the new path of a file
    place: int = -1  # offset of a write, -1 for the end of the file, or the size to which a file is cut


class _File:
    """A file: what of it is synced, and the writes since then."""

    def __init__(self, content: bytes = b"") -> None:
        self._synced, self._size = content, len(content)
        self._writes: list[tuple[int, bytes | None]] = []  # None: the file is cut there

    def write(self, place: int, data: bytes | None) -> None:
        place = self._size if place < 0 else place
        self._writes.append((place, data))
        self._size = place if data is None else max(self._size, place + len(data))

    def sync(self) -> None:
        self._synced, self._writes = self.content(lambda: True), []

    def content(self, is_written: Callable[[], bool]) -> bytes:
        """Return what the disk holds, if it is asked of each sector that was written whether it got there."""
        content = bytearray(self._synced)
        for place, data in self._writes:
            if data is None:
                if is_written():
                    content[place:] = bytes(max(0, place - len(content)))
                continue
            start, end = place, place + len(data)
            while start < end:
                stop = min(end, (start // SECTOR + 1) * SECTOR)
                if is_written():
                    content.extend(bytes(max(0, stop - len(content))))
                    content[start:stop] = data[start - place : stop - place]
                start = stop
        return bytes(content)


class _Disk:
    """Files by name: in memory, on the disk, and the changes of names between them, as (former, new, file)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._now = {name: _File(content) for name, content in files.items()}
        self._synced = dict(self._now)
        self._changes: list[tuple[str, str, _File]] = []

    def take(self, call: Call) -> None:
        file = self._now.get(call.path)
        match call.name:
            case "openat" if file is None:
                self._changes.append(("", call.path, self._now.setdefault(call.path, _File())))
            case "rename" | "unlink" if file:
                self._changes.append((call.path, call.data.decode(), file))
                _apply(self._now, self._changes[-1])
            case "sync" if file:
                file.sync()
            case "sync":
                for one in [*self._changes]:
                    if any(name and str(Path(name).parent) == call.path for name in one[:2]):
                        self._changes.remove(one)
                        _apply(self._synced, one)
            case "write" if file:
                file.write(call.place, call.data)
            case "ftruncate" if file:
                file.write(call.place, None)
            case _:
                pass

    def after_cut(self, chance: random.Random) -> Iterator[tuple[str, bytes]]:
        names, share = dict(self._synced), chance.choice((0.0, 0.5, 0.9, 1.0))
        for one in self._changes:
            if chance.random() < share:
                _apply(names, one)
        for name, file in names.items():
            share = chance.choice((0.0, 0.5, 0.9, 1.0))
            yield name, file.content(lambda share=share: chance.random() < share)


def _apply(names: dict[str, _File], change: tuple[str, str, _File]) -> None:
    former, new, file = change
    names.pop(former, None)
    if new:
        names[new] = file


class Trace(NamedTuple):
    """The calls of a program on the files of a folder, in the order in which they ended, and what it said. `before` are
    the files that were there, by path.
    """

    calls: list[Call]
    folder: Path
    before: dict[str, bytes]

    def moment(self, chance: random.Random) -> int:
        """Return the number of a call: any, or as often one that follows the change of a name."""
        named = [n for n, call in enumerate(self.calls, 1) if call.name in ("rename", "unlink")]
        return chance.choice(named) if named and chance.random() < 0.5 else chance.randrange(len(self.calls) + 1)

    def cut(self, at: int, target: Path, chance: random.Random) -> list[kills.Event]:
        """Write what a power cut before the call with this number may leave; return what the program had said."""
        disk = _Disk(self.before)
        for call in self.calls[:at]:
            disk.take(call)
        for name, content in disk.after_cut(chance):
            if not name.endswith("-shm"):
                path = target / Path(name).relative_to(self.folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return [json.loads(call.data) for call in self.calls[:at] if call.name == "said"]


def record(program: Sequence[str], *folders: Path) -> list[Trace]:
    """Run a Python program, given by arguments of the interpreter, and return its calls on the files of each folder.

    Raises:
        FileNotFoundError: strace is not installed.
    """
    log = folders[0].parent / "strace.log"
    before = [{str(path): path.read_bytes() for path in one.rglob("*") if path.is_file()} for one in folders]
    strace = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-o", str(log), "-e", f"trace={_CALLS}"]
    subprocess.run([*strace, sys.executable, *program], check=True, stdout=subprocess.DEVNULL)
    return [Trace(list(_calls(log, one)), one, files) for one, files in zip(folders, before, strict=True)]


def _calls(log: Path, folder: Path) -> Iterator[Call]:
    for found in _found(log):
        name, arguments = found["name"], found["arguments"]
        texts = [_bytes(text) for text in _TEXT.findall(arguments)]
        if name == "write" and arguments.startswith("1<"):
            yield from (Call("said", "", part) for part in texts[0].splitlines())
            continue
        is_named = name in ("openat", "unlink", "unlinkat", "rename")
        path = (texts[0] if is_named else _bytes(_PATH.findall(arguments)[0])).decode()
        if not Path(path).is_relative_to(folder):
            continue
        assert name != "unlinkat", "the model has no unlinkat"
        last = arguments.rpartition(",")[2].strip()
        match name:
            case "openat":
                if "O_CREAT" in arguments:
                    yield Call(name, path)
                if "O_TRUNC" in arguments:
                    yield Call("ftruncate", path, place=0)
            case "write" | "pwrite64":  # all of ours without an offset are at the end of the file
                yield Call("write", path, texts[0], int(last) if name == "pwrite64" else -1)
            case "rename" | "unlink":
                yield Call(name, path, *texts[1:])
            case "ftruncate":
                yield Call(name, path, place=int(last))
            case _:
                yield Call("sync", path)


def _found(log: Path) -> Iterator[re.Match[str]]:
    """Yield the calls that succeeded; strace parts the line of one during which another thread made a call."""
    started: dict[str, str] = {}
    with log.open(encoding="ascii") as lines:
        for line in filter(None, map(_LINE.fullmatch, lines)):
            text = started.pop(line["thread"], "") + line["rest"]
            if line["unfinished"]:
                started[line["thread"]] = text
            elif (found := _CALL.fullmatch(text)) and int(found["result"]) >= 0:
                yield found


def _bytes(text: str) -> bytes:
    """Return the bytes that strace wrote in hexadecimal digits."""
    return bytes.fromhex(text.replace("\\x", ""))
