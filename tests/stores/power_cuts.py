"""Power cuts of a database, replayed from the system calls of a writer that `strace` recorded.

`record` runs a writer of `kills` under strace. `Trace.cut` writes what a power cut after any of its calls may leave: of
each file what was synced, and of each later write any of its sectors. A new file, a new name and a removed one reach
the disk when their folder is synced; before that they may or may not have.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.stores import kills

SECTOR = 512  # bytes that a disk writes whole or not at all
_CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename"
_LINE = re.compile(r"(?P<thread>\d+) +(?P<rest>.*)")
_UNFINISHED = re.compile(r"(?P<start>.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(?P<end>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+).*")
_PATH = re.compile(r"<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"')


class Call(NamedTuple):
    """A system call that succeeded.

    Attributes:
        name: of the call.
        path: of the file, or of the folder that is synced.
        data: bytes that are written, or the new name of a file.
        place: offset of a write, or the size to which a file is cut.
    """

    name: str
    path: str
    data: bytes = b""
    place: int = 0


@dataclass
class _File:
    """A file of the disk.

    Attributes:
        synced: its content when it was synced last.
        writes: since then, as (place, bytes), or (size, None) where it was cut.
    """

    synced: bytes = b""
    writes: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])

    def content(self, chance: random.Random | None = None) -> bytes:
        """Return its content; with `chance` what a power cut leaves of it."""
        content = bytearray(self.synced)
        share = chance.choice((0.0, 0.5, 0.9, 1.0)) if chance else 1.0
        for place, data in self.writes:
            if data is None:
                if chance is None or chance.random() < share:
                    content[place:] = bytes(max(0, place - len(content)))
                continue
            end = place + len(data)
            start = place
            while start < end:
                stop = min(end, (start // SECTOR + 1) * SECTOR)
                if chance is None or chance.random() < share:
                    content.extend(bytes(max(0, stop - len(content))))
                    content[start:stop] = data[start - place : stop - place]
                start = stop
        return bytes(content)


class Trace:
    """The calls of a writer on the files of one folder, and what it said.

    Args:
        calls: in the order in which they ended.
        folder: of the files.
    """

    def __init__(self, calls: list[Call], folder: Path) -> None:
        self.calls = calls
        self._folder = str(folder)

    def cut(self, at: int, target: Path, chance: random.Random) -> list[kills.Event]:
        """Write what a power cut before the call with this number may leave; return what the writer had said."""
        named: dict[str, _File] = {}  # in memory
        on_disk: dict[str, _File] = {}  # names that were synced with their folder
        said: list[kills.Event] = []
        for call in self.calls[:at]:
            file = named.get(call.path)
            if call.name == "said":
                said.append(json.loads(call.data))
            elif call.name == "openat":
                named.setdefault(call.path, _File())
            elif call.name == "pwrite64" and file:
                file.writes.append((call.place, call.data))
            elif call.name == "ftruncate" and file:
                file.writes.append((call.place, None))
            elif call.name == "unlink":
                named.pop(call.path, None)
            elif call.name == "sync" and call.path == self._folder:
                on_disk = dict(named)
            elif call.name == "sync" and file:
                file.synced, file.writes = file.content(), []
        for name in named.keys() | on_disk.keys():
            file = chance.choice([files[name] for files in (named, on_disk) if name in files])
            is_there = (name in named and name in on_disk) or chance.random() < 0.5
            if is_there and not name.endswith("-shm"):
                (target / Path(name).name).write_bytes(file.content(chance))
        return said


def record(url: str, folder: Path, seed: int) -> Trace:
    """Run a writer of session ``s`` at this URL, whose files are in `folder`, and return its calls.

    Raises:
        FileNotFoundError: strace is not installed.
    """
    log = folder.parent / "strace.log"
    strace = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-o", str(log), "-e", f"trace={_CALLS}"]
    subprocess.run([*strace, sys.executable, kills.__file__, url, str(seed)], check=True, stdout=subprocess.DEVNULL)
    return Trace(list(_calls(log, folder)), folder)


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
        path = texts[0].decode() if name in ("openat", "unlink") else _bytes(_PATH.findall(arguments)[0]).decode()
        if Path(path) != folder and Path(path).parent != folder:
            continue
        assert name not in ("write", "rename"), f"the model has no {name}"
        if name == "openat":
            if "O_CREAT" in arguments:
                yield Call(name, path)
        elif name == "pwrite64":
            yield Call(name, path, texts[0], int(arguments.rpartition(",")[2]))
        elif name == "ftruncate":
            yield Call(name, path, place=int(arguments.rpartition(",")[2]))
        elif name == "unlink":
            yield Call(name, path)
        else:
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
