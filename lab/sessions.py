"""Recorded sessions, of files and folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Literal

from amplifier_context_testing.checks.message_shapes import Message, as_list
from amplifier_context_testing.replay.transcripts import read_transcripts

_NO_RECORDING = ("reuse_probes", "events")  # beside recordings: another project's probes, a host's log
_DEPTH = 8  # folders below a folder that is named
HOST = ("compact_summary_indices", "is_meta_indices")  # of a recording's `meta`: lists of message indices

Part = Literal["choose", "report"]
PARTS: tuple[Part, Part] = ("choose", "report")


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded session.

    Attributes:
        set: the file it came from, without its endings.
        messages: as recorded, in order.
        host: indices of messages with the role of a user that the host wrote: summaries, notes on commands.
    """

    id: str
    set: str
    messages: list[Message]
    host: frozenset[int] = frozenset()

    @property
    def part(self) -> Part:
        return PARTS[hashlib.sha256(self.id.encode()).digest()[0] % 2]


def read_sessions(
    paths: Iterable[str | Path], *, min_messages: int = 0, skipped: list[str] | None = None
) -> list[Session]:
    """Return the sessions of files and folders (their `*.jsonl` and `*.jsonl.gz`, sub-folders included), in order.

    `skipped` gets a sentence for each file of a folder that is no recording; without it that is an error.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file is not a recording (names the line).
    """
    sessions: list[Session] = []
    for path in map(Path, paths):
        for file in _files(path):
            try:
                sessions += _sessions(file)
            except (ValueError, OSError) as problem:
                if file == path or skipped is None:
                    raise
                skipped.append(str(problem))
    chosen = (session for session in sessions if len(session.messages) >= max(min_messages, 2))
    return list(_distinct(chosen))


def _distinct(sessions: Iterable[Session]) -> Iterator[Session]:
    seen: set[str] = set()
    for session in sessions:
        numbered = (f"{session.id} ({number})" for number in count(2))
        name = next(one for one in chain((session.id, f"{session.id} ({session.set})"), numbered) if one not in seen)
        seen.add(name)
        yield replace(session, id=name)


def _files(path: Path) -> Iterator[Path]:
    """Yield the files that may be recordings: the path, or files below it without following links to folders."""
    if not path.is_dir():
        yield path
        return
    for name, folders, files in os.walk(path):
        folder = Path(name)
        deep = len(folder.relative_to(path).parts)
        folders[:] = sorted(below for below in folders if not below.startswith(".")) if deep < _DEPTH else []
        yield from (folder / file for file in sorted(files) if _stem(file) not in (file, *_NO_RECORDING))


def _sessions(file: Path) -> Iterator[Session]:
    for transcript in read_transcripts(file):
        host = frozenset(
            int(index) for key in HOST for index in as_list(transcript.meta.get(key)) or [] if isinstance(index, int)
        )
        yield Session(transcript.id, _stem(file.name), transcript.messages, host)


def _stem(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".jsonl")
