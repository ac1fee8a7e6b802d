"""Looking for damage that reading alone would not show. Changes nothing."""

from __future__ import annotations

from ...errors import StoreError
from .archive import Archive
from .checkpoint import CheckpointDamaged, load
from .file_ops import FileOps, breathe, exists
from .indexed_history import IndexedHistory
from .journal import RedoJournal
from .paths import Part
from .read_only_session import ReadOnlySession, stands
from .repair import ADOPTED, damaged_lines, misfit, notes_of

_OWN: tuple[Part, ...] = ("index", "archive", "checkpoint")  # where none is, another program wrote the file


def problems_of(look: ReadOnlySession) -> list[str]:
    """What is wrong with a session, a line each."""
    files = look.files
    if not look.is_there and not exists(files.path("index")):
        return []
    disk = FileOps(durable=False)
    found = look.examine(all_of_it=True)
    history = look.history_of(found)
    notes = notes_of(files.name, found)
    if not any(exists(files.path(part)) for part in _OWN):
        notes = [note for note in notes if note.done != ADOPTED]
    elif not notes and found.rows != found.known:
        notes = [misfit(files.name)]
    problems = [_with_lost(note.found, note.lost) for note in notes]
    if RedoJournal(files, disk).found() is not None:
        problems.append("an edit is written down but not carried out; that is done when the session is opened")
    if unread := _unreadable(history):
        problems.append(f"{unread:,} messages of {files.name} are no messages, though they are as written")
    if damage := damaged_lines(Archive(files.session_id, files.path("archive"), disk).read()):
        problems.append(damage)
    return problems + _of_checkpoint(files.path("checkpoint"), history)


def _with_lost(what: str, lost: int) -> str:
    return f"{what}; {lost:,} {'message is' if lost == 1 else 'messages are'} lost" if lost else what


def _unreadable(history: IndexedHistory) -> int:
    count = 0
    rows = list(history.rows())
    for start in range(0, len(rows), 512):
        count += len(history.read(iter(rows[start : start + 512]))[1])
        breathe()
    return count


def _of_checkpoint(path: str, history: IndexedHistory) -> list[str]:
    try:
        saved = load(path)
        if saved is None or stands(saved, history):
            return []
    except CheckpointDamaged:
        return ["the checkpoint is damaged; it is left out, and made anew when one is needed"]
    except StoreError as problem:
        return [str(problem)]
    return ["the checkpoint stands for messages that are not there any more; it is left out"]
