"""Erasing messages of a session, and all that derives from them: views, items, short forms, the search index.

Of the session state only what may hold an erased word goes. Budgets, pins and what the meter learned stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..futures import in_thread
from ..messages.parsing import result_text, results_of, text_of
from ..transcript.entry import Entry
from ..transcript.redaction import holding, holds, texts_of
from ..view import shared_cache
from ..view.resume import holds_text
from .items import is_list, kept_labels, line_of, lines_of_items, listed_line, lists_any, recall_lines
from .search import SessionSearch
from .session import Session


class Erased(list[str]):
    """Marks of the messages that a call of `forget` has erased."""

    def __init__(self, marks: Iterable[str], also_in: Sequence[str] = ()) -> None:
        super().__init__(marks)
        self.also_in = tuple(also_in)  # marks of messages that contain words of these messages, and are not erased


async def forget(
    session: Session, search: SessionSearch, seqs: Collection[int], forms: Collection[str], *, trace: bool
) -> Erased:
    """See `ContextManager.forget`; `forms` are those of one text."""
    left, everything = await session.history.shielded(_erase(session, search, seqs, forms, trace))
    erased = {entry.seq for entry in left}
    texts = {text for entry in everything if entry.seq in seqs for text in texts_of(entry.message)}
    copies = await in_thread(holding, (entry for entry in everything if entry.seq not in erased), texts)
    return Erased((entry.mark for entry in left), [entry.mark for entry in copies])


async def _erase(
    session: Session, search: SessionSearch, seqs: Collection[int], forms: Collection[str], trace: bool
) -> tuple[list[Entry], list[Entry]]:
    """Return the erased entries, and the archive and the history as they were."""
    everything = await session.history.everything()
    chosen = [entry.message for entry in everything if entry.seq in seqs]
    results = {result_text(result.content) for message in chosen for result in results_of(message)}
    listed = {line for message in chosen for line in lines_of_items(message)}
    items = session.items.concerned(forms, results, listed)
    labels = kept_labels(results)
    lines = {*listed, *map(line_of, items), *map(listed_line, (*results, *labels))}

    def is_erased(entry: Entry) -> bool:
        if entry.seq in seqs or (bool(forms) and holds(entry.message, forms)):
            return True
        return is_list(entry.message) and lists_any(text_of(entry.message.get("content")), lines)

    counter = await session.counter()
    async with session.saves.lock.hold():  # else a state from before is saved after the erasure, with the text
        is_derived = bool(items) or session.items.lists_text(forms) or await _state_holds(session, forms)
        is_selected = True  # also after an error: the store may have replaced messages although its answer was lost
        erased = {entry.seq for entry in everything if is_erased(entry)}
        try:
            left, problem = await session.history.redact(is_erased, lines=recall_lines(items, labels), trace=trace)
            is_selected = bool(left) or is_derived
            erased = {entry.seq for entry in left}
        finally:
            if is_selected:
                session.compactor.start_over(counter, [entry for entry in everything if entry.seq in erased])
                session.items.forget(items, forms)
        if is_selected:
            search.forget()
            gone = {call for entry in left for call in (*entry.call_ids, *entry.answered_ids)}
            session.compactor.directions.short_forms.drop(lambda call, text: call in gone or holds(text, forms))
            shared_cache.clear()
    if is_selected:
        await session.save()
    if problem is not None:
        raise problem
    return left, everything


async def _state_holds(session: Session, forms: Collection[str]) -> bool:
    """True if what is kept beside history and items may hold one of these texts: chapters, short forms, focus.

    What handlers gave a compaction in flight is not seen, and may.
    """
    if not forms or session.compactor.is_compacting:
        return bool(forms)
    return await in_thread(holds_text, await session.state(), forms)
