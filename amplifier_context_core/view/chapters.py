"""The chapters of a view, as plain data: for people and for tools that list them. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..compaction.checkpoint import Segment
from ..messages.parsing import text_of


def chapters_of(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    return [
        {
            "mark": f"m{segment.first}",
            "to": f"m{segment.last}",
            "rounds": len(segment.chapter.entries) + segment.chapter.left_out,
            "tokens": segment.tokens,
            "original_tokens": segment.original_tokens,
            "text": "\n".join(text_of(shown.message["content"]) for shown in segment.shown),
        }
        for segment in segments
        if segment.chapter
    ]
