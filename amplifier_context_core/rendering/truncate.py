"""Clipping of a long text: its head and its tail, and between them a mark that states what was cut."""

from __future__ import annotations

_HEAD_SHARE = 0.6  # the head names the subject, the tail the outcome; the head matters slightly more
_LINE_REACH = 0.15  # of a part; how far a cut may move to a line end


def cut_mark(cut: int, mark: str | None) -> str:
    """`mark` names the whole text."""
    where = f", whole text: {mark}" if mark else ""
    return f"[... {cut:,} characters cut{where} ...]"


def clip_text(text: str, max_chars: int, mark: str | None = None) -> str:
    """Return at most `max_chars` characters of `text`: its head, a mark, its tail. A short text is unchanged.

    Clipping again to the same or a larger size changes nothing. If `max_chars` is too small for the mark, the bare head
    is returned. A text that is not blank does not become blank, because providers refuse that.

    Args:
        max_chars: at least 1.
        mark: names the message that holds the whole text, e.g. ``m12``.
    """
    if len(text) <= max_chars:
        return text
    note = "\n" + cut_mark(len(text), mark) + "\n"
    room = max_chars - len(note)
    if room < 2:
        return text[:max_chars] if text[:max_chars].strip() else text.lstrip()[:max_chars] or text[:max_chars]
    head = text[: _line_end(text, int(room * _HEAD_SHARE))]
    rest = room - len(head)
    tail = text[_line_start(text, len(text) - rest) :]
    return f"{head}\n{cut_mark(len(text) - len(head) - len(tail), mark)}\n{tail}"


def _line_end(text: str, end: int) -> int:
    cut = text.rfind("\n", int(end * (1 - _LINE_REACH)), end)
    return cut if cut > 0 else end


def _line_start(text: str, start: int) -> int:
    reach = start + int((len(text) - start) * _LINE_REACH)
    cut = text.find("\n", start, reach)
    return cut + 1 if cut >= 0 else start
