"""Recorded sessions with what is asked about them: questions, and probes that lie beside them in the folder."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..replay import read_transcripts
from ..shapes import Message, as_list, as_mapping

PROBES = "reuse_probes.jsonl"

Part = Literal["choose", "report"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A string that a later tool call needed long after it was last mentioned."""

    needle: str
    used_at: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about earlier messages.

    Attributes:
        text: the question.
        evidence: what must still be there, verbatim; short texts of the messages that answer it.
        answers: gold answers.
        indices: the messages that hold the evidence.
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
    """

    id: str
    set: str
    messages: list[Message]
    probes: tuple[Probe, ...] = ()
    questions: tuple[Question, ...] = ()

    @property
    def part(self) -> Part:
        """Which half of the data it belongs to: one for choosing settings, one for reporting figures."""
        return "choose" if hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0 else "report"


def read_sessions(paths: Iterable[str | Path], *, min_messages: int = 0, part: Part | None = None) -> list[Session]:
    """The sessions of files and folders (their `*.jsonl` and `*.jsonl.gz`), in order.

    Args:
        paths: files or folders.
        min_messages: shorter sessions are left out.
        part: only this half of the data.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file is not a recording; names the line.
    """
    sessions = [session for path in paths for file in _files(Path(path)) for session in _sessions(file)]
    return [
        session
        for session in sessions
        if len(session.messages) >= max(min_messages, 2) and (part is None or session.part == part)
    ]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _stem(file) != file.name and _stem(file) + ".jsonl" != PROBES)


def _sessions(file: Path) -> Iterator[Session]:
    set_name = _stem(file)
    probes = _probes(file.parent, set_name)
    transcripts = list(read_transcripts(file))  # first: it says which line is wrong
    asked = {str(entry.get("id")): entry.get("qa") for entry in _objects(file) if entry.get("qa")}
    for transcript in transcripts:
        questions = _questions(asked.get(transcript.id), transcript.messages)
        yield Session(transcript.id, set_name, transcript.messages, probes.get(transcript.id, ()), questions)


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
    """Lower case, white space folded: how evidence is compared."""
    return " ".join(text.lower().split())


def _objects(file: Path) -> Iterator[Mapping[str, Any]]:
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    for line in text.split("\n"):
        if line.strip() and (entry := as_mapping(json.loads(line))) is not None:
            yield entry


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".jsonl")
