"""Transcripts, rounds, segments and drafts made of plain messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amplifier_context_core.compaction.checkpoint import DigestEntry, Draft, Segment, segment_of
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.rendering.rounds import Round, rounds_of
from amplifier_context_core.transcript.transcript import Transcript
from tests.messages import Message


def transcript(messages: Iterable[Message], session_id: str = "s") -> Transcript:
    """A transcript of these messages, counted by the heuristic."""
    made = Transcript(session_id)
    for raw in messages:
        message, info = parse_message(raw)
        made.append(made.draft(message, info, count_message_tokens(message), created="2026-01-01T00:00:00.000+00:00"))
    return made


def rounds(*messages: Message) -> list[Round]:
    return rounds_of(transcript(messages).snapshot())


def segments(*messages: Message) -> list[Segment]:
    """Return a segment for each round, shown as stored."""
    return [
        segment_of(round_, [RenderedMessage(entry.message, entry.tokens, entry.seq) for entry in round_.entries])
        for round_ in rounds(*messages)
    ]


def digests(*messages: Message, share: float = 0.25, **more: Any) -> list[DigestEntry]:
    """Return the entry of a chapter for each round."""
    known: set[str] = set()
    return [digest_round(one, known, approx_token_counter, share=share, **more) for one in rounds(*messages)]


def draft(*messages: Message, fixed: int = 0) -> Draft:
    return Draft(tuple(segments(*messages)), fixed)
