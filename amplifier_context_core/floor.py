"""The floor: what no strategy may remove, found before any strategy runs.

The task, the newest human message, the newest round, pins, rounds that carry loaded-tool state, the newest notice of
each hook. If together they leave no room to work in, the largest are clipped head and tail, the pins last, so that the
request still fits and compactions do not follow one another on every request.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import orjson

from .checkpoint import Draft, Piece
from .clip import clip_text
from .media import MEDIA_BLOCKS
from .messages import INSTRUCTING, Message, is_signed, json_text, metadata_of
from .render import Rendered
from .strategies.base import floored
from .tokens import TokenCounter, count_message_tokens

_TRIES = 6  # clippings until a message is small enough; each aims a little lower
_LEAST = 24  # tokens a clipped message keeps
_WORTH = 60  # tokens below which a message is not clipped: the mark would cost nearly what it saves


def mark_floor(
    pieces: Sequence[Piece], pins: Collection[int], *, pin_tokens: int, newest_is_later: bool, human_is_later: bool
) -> tuple[list[Piece], list[str]]:
    """The pieces, each with the reason why it must stay, and the marks of pins that had no room.

    Args:
        pieces: of the view, in order.
        pins: seqs pinned by command (``metadata.pinned`` is seen here).
        pin_tokens: tokens all pins together may fill; those beyond it, oldest first served, are no pins.
        newest_is_later: rounds newer than these pieces are in the view.
        human_is_later: one of them is a human's.
    """
    humans = [index for index, piece in enumerate(pieces) if piece.is_human]
    newest_human = humans[-1] if humans and not human_is_later else -1
    notices = {name: index for index, piece in enumerate(pieces) if (name := hook_of(piece))}
    marked: list[Piece] = []
    crowded_out: list[str] = []
    for index, piece in enumerate(pieces):
        held = piece.round
        why = ""
        if held is not None:
            if held.is_pinned or any(entry.seq in pins for entry in held.entries):
                if piece.tokens <= pin_tokens:
                    pin_tokens -= piece.tokens
                    why = "pinned"
                else:
                    crowded_out.append(piece.mark)
            if humans and index == humans[0]:
                why = why or "task"
            elif index == newest_human:
                why = why or "newest human message"
            elif index == len(pieces) - 1 and not newest_is_later:
                why = why or "newest round"
            elif held.holds_loaded_tools:
                why = why or "loaded tools"
            elif notices.get(hook_of(piece) or "") == index:
                why = why or "newest notice of its hook"
        marked.append(floored(piece, why))
    return marked, crowded_out


def hook_of(piece: Piece) -> str | None:
    """The hook whose notice (a later system message) the piece is; None when it is none."""
    if piece.round is None or piece.round.head.role not in INSTRUCTING:
        return None
    name = metadata_of(piece.round.head.message).get("hook_name")
    return name if isinstance(name, str) and name else None


def floor_tokens(draft: Draft) -> int:
    """Tokens of what must stay, the fixed part of the view included."""
    return draft.fixed + sum(piece.tokens for piece in draft.pieces if piece.floor)


def clip_floor(draft: Draft, limit: int, counter: TokenCounter) -> Draft:
    """Clip the largest members of the floor until it fits `limit` tokens; pins only when that is not enough."""
    for spare_pins in (True, False):
        over = floor_tokens(draft) - limit
        if over <= 0:
            break
        members = [p for p in draft.pieces if p.floor and not (spare_pins and p.floor == "pinned")]
        cap = _cap([piece.tokens for piece in members], sum(p.tokens for p in members) - over)
        large = {id(piece) for piece in members if piece.tokens > cap}
        draft = draft.with_pieces(clip_piece(p, cap, counter) if id(p) in large else p for p in draft.pieces)
    return draft


def clip_piece(piece: Piece, max_tokens: int, counter: TokenCounter) -> Piece:
    """A piece of at most about `max_tokens`: its largest messages are clipped head and tail."""
    cap = _cap([shown.tokens for shown in piece.shown], max_tokens)
    shown = [clip_rendered(message, cap, counter) if message.tokens > cap else message for message in piece.shown]
    if all(a is b for a, b in zip(shown, piece.shown, strict=True)):
        return piece
    return piece.showing(shown, "clipped", "floor")


def clip_rendered(shown: Rendered, max_tokens: int, counter: TokenCounter) -> Rendered:
    """A message of at most about `max_tokens`; the same object when nothing of it can be clipped."""
    max_tokens = max(max_tokens, _LEAST)
    size = shown.tokens
    if size < _WORTH:
        return shown
    ratio = max_tokens / max(size, 1)
    best = shown
    for _ in range(_TRIES):
        message = _clip_message(shown.message, ratio, f"m{shown.seq}" if shown.seq else None)
        tokens = count_message_tokens(message, counter)
        if tokens < best.tokens:
            best = Rendered(message, tokens, shown.seq, shown.provider)
        if tokens <= max_tokens or ratio < 1e-4:
            break
        ratio *= 0.8 * max_tokens / tokens
    return best


def _cap(sizes: Sequence[int], total: int) -> int:
    """The size to which the largest must come down so that all together are at most `total`."""
    left = max(total, 0)
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return max(share, _LEAST)
        left -= size
    return max(sizes, default=0)


def _clip_message(message: Message, ratio: float, mark: str | None) -> Message:
    if is_signed(message):
        return message  # byte-exact, or folded whole
    clipped: Message = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        clipped["content"] = _clip(content, ratio, mark)
    elif isinstance(content, list):
        clipped["content"] = [_clip_block(block, ratio, mark) for block in cast("list[dict[str, Any]]", content)]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        clipped["tool_calls"] = [_clip_call(call, ratio, mark) for call in cast("list[dict[str, Any]]", calls)]
    return clipped


def _clip_block(block: dict[str, Any], ratio: float, mark: str | None) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {**block, "text": _clip(block["text"], ratio, mark)}
    if kind == "tool_call":
        return {**block, "input": _clip_values(block["input"], ratio, mark)}
    if kind in MEDIA_BLOCKS and ratio < 0.5:
        return {"type": "text", "text": f"[{kind} left out for want of room{f': {mark}' if mark else ''}]"}
    return block


def _clip_call(call: dict[str, Any], ratio: float, mark: str | None) -> dict[str, Any]:
    function = call.get("function")
    if isinstance(function, dict):
        function = cast("dict[str, Any]", function)
        arguments = orjson.loads(function["arguments"])
        return {**call, "function": {**function, "arguments": json_text(_clip_values(arguments, ratio, mark))}}
    return {**call, "arguments": _clip_values(call.get("arguments"), ratio, mark)}


def _clip_values(value: Any, ratio: float, mark: str | None) -> Any:
    if isinstance(value, str):
        return _clip(value, ratio, mark)
    if isinstance(value, dict):
        return {key: _clip_values(item, ratio, mark) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_clip_values(item, ratio, mark) for item in cast("list[Any]", value)]
    return value


def _clip(text: str, ratio: float, mark: str | None) -> str:
    return clip_text(text, max(16, int(len(text) * ratio)), mark)
