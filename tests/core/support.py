"""What the tests of the pure rooms share: entries, rounds and drafts made from plain messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amplifier_context_core.compaction.checkpoint import Draft, Segment, segment_of
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.rendering.rounds import Round, rounds_of
from amplifier_context_core.transcript.transcript import Transcript

Message = dict[str, Any]
PNG_1X1 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


def user(content: Any = "Go on.", **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def says(content: Any = "Done.", **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(*ids: str, name: str = "read", path: str = "src/a.py", **more: Any) -> Message:
    """An assistant message with calls, as OpenAI spells them."""
    listed = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": f'{{"path": "{path}"}}'}} for id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed, **more}


def result(id: str, content: Any = "out", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


def system(content: Any = "Be careful.", **more: Any) -> Message:
    return {"role": "system", "content": content, **more}


def block(text: str) -> Message:
    return {"type": "text", "text": text}


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


def draft(*messages: Message, fixed: int = 0) -> Draft:
    return Draft(tuple(segments(*messages)), fixed)
