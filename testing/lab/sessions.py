"""Recorded sessions with their questions, and with the probes in a file of the same folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from ..checks.message_shapes import Message, as_list, as_mapping
from ..replay.transcripts import read_transcripts

PROBES = "reuse_probes.jsonl"
KEPT = "context-messages.jsonl"  # the history of a session that context-persistent keeps
_COPIES = frozenset({"transcript"})  # what a host keeps beside it: the same conversation
_UNNAMED = frozenset({"context-messages", "transcript"})  # names of files of which each session has one
_DERIVED = (".archive", ".index", "events")  # endings of what is no conversation: of a stored session, a host's log
_DEPTH = 8  # folders below a folder that is named
_FILES = 10_000  # recordings at most: a folder that holds more was hardly meant
HOST = ("compact_summary_indices", "is_meta_indices")  # of a recording's `meta`: lists of message indices

Part = Literal["choose", "report"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A string that a tool call needed long after its last mention."""

    needle: str
    used_at: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about earlier messages.

    Attributes:
        text: the question.
        evidence: short texts of the answering messages, which the view must contain verbatim.
        answers: gold answers.
        indices: indices of the messages that contain the evidence.
    """

    text: str
    evidence: tuple[str, ...]
    answers: tuple[str, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded session.

    Attributes:
        id: unique in its set.
        set: the file it came from, without its endings.
        messages: as recorded, in order.
        probes: reuse probes.
        questions: questions with evidence.
        host: indices of messages with the role of a user that the host wrote: summaries, notes on commands.
    """

    id: str
    set: str
    messages: list[Message]
    probes: tuple[Probe, ...] = ()
    questions: tuple[Question, ...] = ()
    host: frozenset[int] = frozenset()

    @property
    def part(self) -> Part:
        """Return the half of the data it belongs to: one for choosing settings, one for reporting figures."""
        return "choose" if hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0 else "report"


def read_sessions(
    paths: Iterable[str | Path], *, min_messages: int = 0, part: Part | None = None, skipped: list[str] | None = None
) -> list[Session]:
    """Return the sessions of files and folders (their `*.jsonl` and `*.jsonl.gz`, sub-folders included), in order.

    Args:
        paths: files or folders.
        min_messages: shorter sessions are left out.
        part: only this half of the data.
        skipped: gets a sentence for each file of a folder that is no recording; without it that is an error.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file is not a recording (names the line), or a folder holds too many.
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
    return [session for session in distinct(chosen) if part is None or session.part == part]


def distinct(sessions: Iterable[Session]) -> Iterator[Session]:
    """Yield the sessions; give a repeated id a suffix, because figures are stored by id."""
    seen: set[str] = set()
    for session in sessions:
        names = chain(
            (session.id, f"{session.id} ({session.set})"),
            (f"{session.id} ({number})" for number in count(2)),
        )
        name = next(name for name in names if name not in seen)
        seen.add(name)
        yield session if name == session.id else replace(session, id=name)


def _files(path: Path) -> list[Path]:
    """Yield the files that may be recordings: the path, or files below it without following links to folders."""
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for name, folders, files in os.walk(path):
        folder = Path(name)
        deep = len(folder.relative_to(path).parts)
        folders[:] = sorted(below for below in folders if not below.startswith(".")) if deep < _DEPTH else []
        for file in sorted(files):
            stem = _stem(Path(file))
            if stem == file or stem + ".jsonl" == PROBES or stem.endswith(_DERIVED):
                continue
            if stem in _COPIES and KEPT in files:
                continue
            found.append(folder / file)
        if len(found) > _FILES:
            raise ValueError(f"{path} holds more than {_FILES:,} recordings; name smaller folders")
    return found


def _sessions(file: Path) -> Iterator[Session]:
    set_name = _stem(file)
    probes = _probes(file.parent, set_name)
    transcripts = list(read_transcripts(file))  # first: it says which line is wrong
    asked = {str(entry.get("id")): entry.get("qa") for entry in _objects(file) if entry.get("qa")}
    for transcript in transcripts:
        questions = _questions(asked.get(transcript.id), transcript.messages)
        host = frozenset(
            int(index) for key in HOST for index in as_list(transcript.meta.get(key)) or [] if isinstance(index, int)
        )
        named = file.parent.resolve().name if transcript.id in _UNNAMED else transcript.id
        yield Session(named, set_name, transcript.messages, probes.get(transcript.id, ()), questions, host)


def _probes(folder: Path, set_name: str) -> dict[str, tuple[Probe, ...]]:
    for name in (PROBES, f"{PROBES}.gz"):
        if (folder / name).is_file():
            return {
                str(entry["id"]): tuple(Probe(str(p["needle"]), int(p["used_at"])) for p in entry["probes"])
                for entry in _objects(folder / name)
                if entry.get("set") == set_name
            }
    return {}


def _questions(listed: object, messages: list[Message]) -> tuple[Question, ...]:
    found: list[Question] = []
    for item in as_list(listed) or []:
        entry = as_mapping(item) or {}
        indices = tuple(int(i) for i in as_list(entry.get("evidence_message_indices")) or [] if int(i) < len(messages))
        if not indices:
            continue
        sources = [folded(str(messages[index].get("content") or "")) for index in indices]
        answers = tuple(str(answer) for answer in as_list(entry.get("answers")) or [])
        quote = folded(str(entry.get("source_quote") or "").strip(" ."))
        quotes = (quote,) if quote and any(quote in source for source in sources) else ()
        literal = tuple(a for a in answers if any(folded(a) in source for source in sources))
        evidence = quotes or literal
        if evidence:
            found.append(Question(str(entry.get("question")), evidence, literal, indices))
    return tuple(found)


def folded(text: str) -> str:
    """Return a text in lower case with white space folded, for comparing evidence."""
    return " ".join(text.lower().split())


def _objects(file: Path) -> Iterator[Mapping[str, Any]]:
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    for line in text.split("\n"):
        if line.strip() and (entry := as_mapping(json.loads(line))) is not None:
            yield entry


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".jsonl")
