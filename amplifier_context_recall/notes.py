"""Notes of a project: short texts that outlive sessions, in the store that keeps the project's sessions.

They are a history of their own, under a session id that no conversation gets (`NOTES`). So every store keeps them as it
keeps messages: with seqs that are never given again, one writer at a time, private files, and an erasure that leaves
nothing.
A writer has the history for as long as one change takes; another one waits for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from amplifier_context_core.default_paths import project_name
from amplifier_context_core.errors import ConfigError, SessionInUse
from amplifier_context_core.messages.parsing import Message, metadata_of, parse_message, text_of
from amplifier_context_core.messages.timestamps import utc_now, with_timestamp
from amplifier_context_core.messages.tokens import TokenCounter, approx_token_counter, count_message_tokens, measure
from amplifier_context_core.rendering.quoting import quoted, single_line, without_controls
from amplifier_context_core.stores import Store
from amplifier_context_core.stores.validation import NOTES
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.redaction import REDACTED_TEXT, is_redacted, redacted
from amplifier_context_core.transcript.transcript import Transcript

MAX_CHARS = 1_000  # of a note: about 250 tokens
MAX_NOTES = 200  # of a project
MAX_OF_AGENTS = 150  # of a project; so there is room for what people write, whatever agents keep; chosen by hand
AGENT = "agent"  # how the author of an agent's note begins
_MAX_AUTHOR = 80  # characters
_WAIT = 15.0  # seconds that a writer waits for another one, whose change takes milliseconds
_PAUSE = 0.02  # seconds before it asks again at first
_HOOK = "project-note"


@dataclass(frozen=True, slots=True)
class ProjectNote:
    seq: int  # its identity in the project; no other note ever gets it
    text: str
    author: str  # a person or an agent, and which
    created: str  # ISO 8601, UTC
    changed: str  # ISO 8601, UTC; `created` if it was never edited

    @property
    def mark(self) -> str:
        """``n3``."""
        return f"n{self.seq}"

    def as_json(self) -> dict[str, str]:
        return {"mark": self.mark, **{name: value for name, value in asdict(self).items() if name != "seq"}}

    @property
    def line(self) -> str:
        """No text in it can pose as another note."""
        return single_line(f"{self.mark} ({self.changed[:10]}, {self.author}): {self.text}")


def notes_id(project: Path | None = None) -> str:
    """Return the session id of a project's notes; `project` is its folder, by default the current one."""
    return NOTES + project_name(project)


class Notes:
    """The notes of one project.

    Args:
        opened: makes a store; each call of a method has one of its own, and closes it.
        session_id: from `notes_id`.
        clock: ISO 8601, UTC.
    """

    def __init__(self, opened: Callable[[], Store], session_id: str, clock: Callable[[], str] = utc_now) -> None:
        self._opened = opened
        self._session_id = session_id
        self._clock = clock

    async def all(self) -> list[ProjectNote]:
        """The oldest note is first. Raises `StoreError`: the store cannot read them."""
        store = self._opened()
        try:
            entries = await store.read(self._session_id)
        finally:
            await store.close()
        return [_note(entry) for entry in entries if _is_note(entry)]

    async def add(self, text: str, author: str) -> ProjectNote:
        """Raises `ConfigError`: the text is empty or too long, or there are too many notes, of agents or in all;
        `StoreError`: the store refused it, or other writers did not let go of the notes for 15 seconds.
        """
        text = _checked(text)
        async with self._writing() as store:
            entries = await self._without_erased(store)
            kept = [_note(entry) for entry in entries if _is_note(entry)]
            if len(kept) >= MAX_NOTES:
                raise ConfigError("note", f"the project has {MAX_NOTES} notes; delete some first")
            if author.startswith(AGENT) and sum(note.author.startswith(AGENT) for note in kept) >= MAX_OF_AGENTS:
                raise ConfigError(
                    "note", f"agents keep {MAX_OF_AGENTS} notes of the project; a person must delete some"
                )
            extent = await store.extent(self._session_id)
            history = Transcript.resumed(self._session_id, (), entries, length=extent.length, last_seq=extent.last_seq)
            now = self._clock()
            message, info = parse_message(with_timestamp(_message(text, author), now))
            entry = history.draft(message, info, await measure(message, approx_token_counter), created=now)
            await store.append(self._session_id, [entry])
        return _note(entry)

    async def edit(self, mark: str, text: str, author: str) -> ProjectNote | None:
        """Replace the text of a note; the former text is erased. Return None if there is no such note.

        Raises:
            ConfigError: the text is empty or too long.
            ValueError: `mark` is no mark of a note.
            StoreError: as for `add`. With `NotErased` the note is changed, and the same call again erases the rest.
        """
        text, seq = _checked(text), note_seq(mark)
        async with self._writing() as store:
            for entry in await store.find(self._session_id, [seq]):
                if not _is_note(entry):
                    break
                message, _ = parse_message(with_timestamp(_message(text, author), entry.created))
                tokens = await measure(message, approx_token_counter)
                changed = entry._replace(message=message, tokens=tokens, completed=self._clock())
                await store.rewrite(self._session_id, [changed])
                return _note(changed)
        return None

    async def delete(self, mark: str) -> Literal["erased", "erased before", ""]:
        """Erase a note. Return what became of it: an empty text if there never was one of this mark.

        Of a note that was erased before, what its store may still hold is erased.

        Raises:
            ValueError: `mark` is no mark of a note.
            StoreError: as for `add`. With `NotErased` it reads as erased, and the same call again erases the rest.
        """
        async with self._writing() as store:
            seq = note_seq(mark)
            found = await store.find(self._session_id, [seq])
            found = found or [entry for entry in await store.archived(self._session_id) if entry.seq == seq]
            found = [entry for entry in found if _is_note(entry) or is_redacted(entry.message)]
            if found:
                await store.rewrite(self._session_id, [redacted(entry, approx_token_counter) for entry in found])
        if not found:
            return ""
        return "erased before" if all(is_redacted(entry.message) for entry in found) else "erased"

    @staticmethod
    def message(notes: Sequence[ProjectNote], tokens: int, counter: TokenCounter) -> Message | None:
        """Return the system message with which a fresh session begins; None if there is no note, or no room for one.

        It is quoted as data, and marked as a hook's, as the messages of memory files are. Where `tokens` do not
        suffice, the oldest notes, which come first, are left out, and it says so.
        """

        def shown(left_out: int) -> Message:
            lines = [note.line for note in notes[left_out:]]
            if left_out:
                lines.insert(0, f"[{left_out:,} older notes are left out]")
            text = quoted("notes of this project, kept by earlier sessions", "\n".join(lines))
            return {"role": "system", "content": text, "metadata": {"source": "hook", "hook_name": "memory:notes"}}

        def fits(left_out: int) -> bool:
            return count_message_tokens(shown(left_out), counter) <= tokens

        # The line that says how many are left out may be longer than a note: to leave out one may take more than none.
        fewest = 0 if fits(0) else bisect_left(range(len(notes)), True, lo=1, key=fits)
        return shown(fewest) if fewest < len(notes) else None

    def capabilities(self, session_id: str) -> dict[str, Callable[..., Any]]:
        """Return what the tools of a session get: the author of its notes is its agent."""

        async def listed() -> list[dict[str, str]]:
            return [note.as_json() for note in await self.all()]

        async def add(text: str) -> dict[str, str]:
            return (await self.add(text, f"{AGENT}, session {session_id}")).as_json()

        return {"context.notes": listed, "context.add_note": add}

    async def _without_erased(self, store: Store) -> list[Entry]:
        """Return the entries of all notes. Take erased ones out of the list, which each session reads."""
        entries = await store.read(self._session_id)
        erased = [index for index, entry in enumerate(entries) if is_redacted(entry.message)]
        if erased:
            entries = [entry for entry in entries if not is_redacted(entry.message)]
            await store.replace(self._session_id, erased[0], entries[erased[0] :])
        return entries

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[Store]:
        store = self._opened()
        clock = asyncio.get_running_loop().time
        until, pause = clock() + _WAIT, _PAUSE
        try:
            while True:
                try:
                    await store.open(self._session_id)
                    break
                except SessionInUse:
                    if clock() > until:
                        raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)
            yield store
        finally:
            await store.close()


def _message(text: str, author: str) -> Message:
    about = {"source": "hook", "hook_name": _HOOK, "note_author": single_line(without_controls(author))[:_MAX_AUTHOR]}
    return {"role": "system", "content": text, "metadata": about}


def _is_note(entry: Entry) -> bool:
    """False for an erased one, and for a message that another program put among them."""
    return metadata_of(entry.message).get("hook_name") == _HOOK and not is_redacted(entry.message)


def _note(entry: Entry) -> ProjectNote:
    author = metadata_of(entry.message).get("note_author")
    text = without_controls(text_of(entry.message.get("content")))
    author = without_controls(author) if isinstance(author, str) else ""
    return ProjectNote(entry.seq, text, author, entry.created, entry.completed)


def _checked(text: object) -> str:
    text = without_controls(text).strip() if isinstance(text, str) else ""
    if text in ("", REDACTED_TEXT):
        raise ConfigError("note", f"must be a text that is not empty, and not {REDACTED_TEXT!r}")
    if len(text) > MAX_CHARS:
        raise ConfigError("note", f"has {len(text):,} characters; a note has at most {MAX_CHARS:,}")
    return text


def note_seq(mark: str) -> int:
    """Return the seq that a mark such as ``n3`` names; raise `ValueError` if the text is none."""
    number = mark.strip().lower().removeprefix("n")
    if not number.isascii() or not number.isdecimal() or len(number) > 12:
        raise ValueError(f"{mark[:40]!r} is no mark of a note, such as n3")
    return int(number)
