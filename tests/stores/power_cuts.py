"""Power cuts of a database, replayed from the system calls of a writer that `strace` recorded.

`record` runs a program under strace. `Trace.cut` writes what a power cut after any of its calls may leave: of each file
what was synced, and of each later write any of its sectors. A new file, a new name and a removed one reach the disk
when their folder is synced; before that each may or may not have. A file that is renamed has one of both names.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.stores import kills

SECTOR = 512  # bytes that a disk writes whole or not at all
_CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,unlinkat,rename"
_LINE = re.compile(r"(?P<thread>\d+) +(?P<rest>.*)")
_UNFINISHED = re.compile(r"(?P<start>.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(?P<end>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+).*")
_PATH = re.compile(r"<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"')


class Call(NamedTuple):
    """A system call that succeeded."""

    name: str
    path: str  # of the file, or of the folder that is synced
    data: bytes = b""  # that are written, or the new path of a file
    place: int = 0  # offset of a write, or the size to which a file is cut


@dataclass
class _File:
    """A file of the disk."""

    synced: bytes = b""  # its content when it was synced last
    writes: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])  # since; None: a cut
    size: int = 0  # with these writes

    def write(self, place: int, data: bytes | None) -> None:
        self.writes.append((place, data))
        self.size = place if data is None else max(self.size, place + len(data))

    def content(self, chance: random.Random | None = None) -> bytes:
        """Return its content; with `chance` what a power cut leaves of it."""
        content = bytearray(self.synced)
        share = chance.choice((0.0, 0.5, 0.9, 1.0)) if chance else 1.0
        for place, data in self.writes:
            if data is None:
                if chance is None or chance.random() < share:
                    content[place:] = bytes(max(0, place - len(content)))
                continue
            start, end = place, place + len(data)
            while start < end:
                stop = min(end, (start // SECTOR + 1) * SECTOR)
                if chance is None or chance.random() < share:
                    content.extend(bytes(max(0, stop - len(content))))
                    content[start:stop] = data[start - place : stop - place]
                start = stop
        return bytes(content)


@dataclass
class _Names:
    """The names of the files of a disk: those in memory, and the changes of them that are not synced."""

    now: dict[str, _File]
    synced: dict[str, _File]
    changes: list[tuple[str, str, _File]] = field(default_factory=list[tuple[str, str, _File]])  # former and new name

    def change(self, former: str, new: str) -> None:
        """Rename a file; or remove it, if the new name is empty; or create it, if the former one is."""
        file = self.now.pop(former, None) or _File()
        if new:
            self.now[new] = file
        self.changes.append((former, new, file))

    def sync(self, folder: str) -> None:
        """Write the changes of a folder to the disk."""
        left, self.changes = self.changes, []
        for one in left:
            if any(name and str(Path(name).parent) == folder for name in one[:2]):
                _apply(self.synced, one)
            else:
                self.changes.append(one)

    def after_cut(self, chance: random.Random) -> dict[str, _File]:
        names, share = dict(self.synced), chance.choice((0.0, 0.5, 0.9, 1.0))
        for one in self.changes:
            if chance.random() < share:
                _apply(names, one)
        return names


def _apply(names: dict[str, _File], change: tuple[str, str, _File]) -> None:
    former, new, file = change
    names.pop(former, None)
    if new:
        names[new] = file


class Trace:
    """The calls of a program on the files of a folder, in the order in which they ended, and what it said. `before` are
    the files that were there, by path.
    """

    def __init__(self, calls: list[Call], folder: Path, before: dict[str, bytes]) -> None:
        self.calls = calls
        self._folder, self._before = folder, before

    def moment(self, chance: random.Random) -> int:
        """Return the number of a call: any, or as often one that follows the change of a name."""
        named = [n for n, call in enumerate(self.calls, 1) if call.name in ("rename", "unlink")]
        return chance.choice(named) if named and chance.random() < 0.5 else chance.randrange(len(self.calls) + 1)

    def cut(self, at: int, target: Path, chance: random.Random) -> list[kills.Event]:
        """Write what a power cut before the call with this number may leave; return what the program had said."""
        files = {name: _File(content, size=len(content)) for name, content in self._before.items()}
        names = _Names(files, dict(files))
        said: list[kills.Event] = []
        for call in self.calls[:at]:
            file = names.now.get(call.path)
            match call.name:
                case "said":
                    said.append(json.loads(call.data))
                case "openat" if file is None:
                    names.change("", call.path)
                case "rename" | "unlink":
                    names.change(call.path, call.data.decode())
                case "sync" if file is None:
                    names.sync(call.path)
                case "sync" if file:
                    file.synced, file.writes = file.content(), []
                case "write" | "pwrite64" if file:
                    file.write(file.size if call.name == "write" else call.place, call.data)
                case "ftruncate" if file:
                    file.write(call.place, None)
                case _:
                    pass
        for name, file in names.after_cut(chance).items():
            if not name.endswith("-shm"):
                path = target / Path(name).relative_to(self._folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content(chance))
        return said


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
    for line in _whole_lines(log):
        found = _CALL.fullmatch(line)
        if found is None or int(found["result"]) < 0:
            continue
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
        match name:
            case "openat":
                if "O_CREAT" in arguments:
                    yield Call(name, path)
                if "O_TRUNC" in arguments:
                    yield Call("ftruncate", path)
            case "rename":
                yield Call(name, path, texts[1])
            case "write":  # all of ours are at the end of the file
                yield Call(name, path, texts[0])
            case "pwrite64":
                yield Call(name, path, texts[0], int(arguments.rpartition(",")[2]))
            case "ftruncate":
                yield Call(name, path, place=int(arguments.rpartition(",")[2]))
            case "unlink":
                yield Call(name, path)
            case _:
                yield Call("sync", path)


def _whole_lines(log: Path) -> Iterator[str]:
    """Yield each call in a line; strace parts one during which another thread made a call."""
    started: dict[str, str] = {}
    with log.open(encoding="ascii") as lines:
        for line in lines:
            found = _LINE.fullmatch(line.rstrip("\n"))
            if found is None:
                continue
            thread, rest = found["thread"], found["rest"]
            if (unfinished := _UNFINISHED.fullmatch(rest)) is not None:
                started[thread] = unfinished["start"]
            elif (resumed := _RESUMED.fullmatch(rest)) is not None:
                yield started.pop(thread) + resumed["end"]
            else:
                yield rest


def _bytes(text: str) -> bytes:
    """Return the bytes that strace wrote in hexadecimal digits."""
    return bytes.fromhex(text.replace("\\x", ""))
