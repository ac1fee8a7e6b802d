"""Find damage that reading alone would not show. Changes nothing."""

from __future__ import annotations

from ...errors import StoreError
from .archive import Archive
from .checkpoint import CheckpointDamaged, load_checkpoint
from .file_ops import FileOps, exists, yield_gil
from .indexed_history import IndexedHistory
from .journal import RedoJournal
from .paths import Part
from .read_only_session import ReadOnlySession, covers_history
from .repair import ADOPTED, describe_damage, findings_of, index_mismatch

_SIDECARS: tuple[Part, ...] = ("index", "archive", "checkpoint")  # if none exists, another program wrote the main file


def problems_of(session: ReadOnlySession) -> list[str]:
    """Return the problems of a session, one a line."""
    files = session.files
    if not session.exists and not exists(files.path("index")):
        return []
    file_ops = FileOps(durable=False)
    report = session.scan(full=True)
    history = session.history_of(report)
    findings = findings_of(files.name, report)
    if not any(exists(files.path(part)) for part in _SIDECARS):
        findings = [note for note in findings if note.action != ADOPTED]
    elif not findings and report.records != report.indexed_records:
        findings = [index_mismatch(files.name)]
    problems = [_with_lost(finding.problem, finding.lost) for finding in findings]
    if RedoJournal(files, file_ops).load() is not None:
        problems.append("an edit is in the journal but not applied; opening the session applies it")
    if unreadable := _unreadable(history):
        problems.append(f"{unreadable:,} messages of {files.name} are no messages, though they are as written")
    if damage := describe_damage(Archive(files.session_id, files.path("archive"), file_ops).read()):
        problems.append(damage)
    return problems + _checkpoint_problems(files.path("checkpoint"), history)


def _with_lost(what: str, lost: int) -> str:
    return f"{what}; {lost:,} {'message is' if lost == 1 else 'messages are'} lost" if lost else what


def _unreadable(history: IndexedHistory) -> int:
    count = 0
    records = list(history.records())
    for start in range(0, len(records), 512):
        count += len(history.read(iter(records[start : start + 512]))[1])
        yield_gil()
    return count


def _checkpoint_problems(path: str, history: IndexedHistory) -> list[str]:
    try:
        checkpoint = load_checkpoint(path)
        if checkpoint is None or covers_history(checkpoint, history):
            return []
    except CheckpointDamaged:
        return ["the checkpoint is damaged; it is ignored, and a new one is made when needed"]
    except StoreError as problem:
        return [str(problem)]
    return ["the checkpoint covers messages that no longer exist; it is ignored"]
