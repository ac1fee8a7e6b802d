"""An entry of a history: one message with its measurements.

Its identity is its `seq`, which is given once and never reused, whatever happens to the history around it. It is
printed as the mark `m12`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

from ..arguments import checked_text, checked_texts
from ..messages.parsing import Message, MessageInfo
from ..messages.usage import Response


class Entry(NamedTuple):
    """One message in history. Immutable; `message` must never be mutated.

    Attributes:
        seq: identity inside the session, from 1, never reused.
        message: as it was given, with a timestamp.
        turn: number of its turn; 0 before the first human message.
        human: a human wrote it, so it begins its turn.
        call_ids: ids of the tool calls it makes.
        answered_ids: ids of the tool calls it answers.
        tokens: its cost in a request, counted once, when it was added.
        session_id: the session it was first added to.
        created: ISO 8601, UTC: when the message was made; for a response, when it was requested, if known.
        completed: ISO 8601, UTC: when it was complete.
        response: model, provider, usage and outcome of an assistant message.
        redaction_trace: of a redacted entry, the hash that its echoes are recognised by, empty if none is kept. None
            for any other entry.
    """

    seq: int
    message: Message
    role: str
    turn: int
    human: bool
    call_ids: tuple[str, ...]
    answered_ids: tuple[str, ...]
    tokens: int
    session_id: str
    created: str
    completed: str
    response: Response | None = None
    redaction_trace: str | None = None

    @classmethod
    def of(
        cls,
        seq: int,
        message: Message,
        info: MessageInfo,
        *,
        turn: int,
        tokens: int,
        session_id: str,
        created: str,
        completed: str | None = None,
        response: Response | None = None,
    ) -> Entry:
        """It was complete when it was created if no other time is given."""
        return cls(
            seq,
            message,
            info.role,
            turn,
            info.human,
            info.call_ids,
            info.answered_ids,
            tokens,
            session_id,
            created,
            created if completed is None else completed,
            response,
        )

    @property
    def mark(self) -> str:
        """``m12``, as views, reports and commands write it."""
        return f"m{self.seq}"

    @property
    def is_redacted(self) -> bool:
        return self.redaction_trace is not None

    @property
    def turn_id(self) -> str:
        """``u3`` for the human message that begins turn 3, ``a3`` for all that follows it."""
        return f"{'u' if self.human else 'a'}{self.turn}"


def seq_of(mark: str) -> int:
    """Return the seq that a mark such as ``m12`` names; raise `ValueError` if it is no text, or no mark."""
    mark = checked_text("mark", mark)
    digits = mark[1:] if mark[:1] == "m" else ""
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise ValueError(f"{mark[:40]!r} is no mark: a message is named like m12")
    return int(digits)


def seqs_of(marks: object) -> list[int]:
    """Return the seqs that marks name: a list of marks, or one mark as text. Raises `ValueError`: the value is neither,
    or one of them is no mark.
    """
    given = [marks] if isinstance(marks, str) else checked_texts("marks", marks, "a list of marks such as ['m12']")
    return [seq_of(mark) for mark in given]
