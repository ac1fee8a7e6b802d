"""The page of a session: one HTML file that needs no network and runs no text of the session.

All that a session says is in JSON blocks, in which no character can end the block. The script puts it into the page as
text, never as markup. The content security policy allows this script and this style sheet, by their hashes, and nothing
else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from amplifier_context_core import Entry
from amplifier_context_core.messages.parsing import json_text

from ..printing import words
from .replay import STATES, Replay

_MOST_CHARS = 20_000  # of one message, in a session of usual length; the command `show --full` has the rest
_PAGE_CHARS = 50_000_000  # of all messages, about: more would take a browser seconds to load
_SLICE = 2_000  # messages of one JSON block
_REPORT_KEYS = (
    "trigger",
    "before_tokens",
    "after_tokens",
    "prefix_given_up_tokens",
    "strategies",
    "chapters",
    "request",
)
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(title: str, entries: Sequence[Entry], replay: Replay) -> Iterator[str]:
    """Yield the page in pieces."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    head, _, body = _asset("page.html").partition("<!-- blocks -->")
    yield head.replace("POLICY", policy).replace("/* style */", style)
    yield _block("session", _session(title, entries, replay))
    most = min(_MOST_CHARS, _PAGE_CHARS // max(1, len(entries)))
    for start in range(0, len(entries), _SLICE):
        yield _block("messages", [_message(entry, most) for entry in entries[start : start + _SLICE]])
    yield body.replace("/* script */", script)


def _session(title: str, entries: Sequence[Entry], replay: Replay) -> dict[str, Any]:
    return {
        "title": title,
        "messages": len(entries),
        "slice": _SLICE,
        "size": replay.size,
        "states": STATES,
        "edited": any(entry.seq != place for place, entry in enumerate(entries, 1)),
        "requests": [[one.shows, one.used, one.reported, one.compaction] for one in replay.requests],
        "compactions": [{key: one[key] for key in _REPORT_KEYS if key in one} for one in replay.compactions],
        "chapters": replay.chapters,
        "fates": list(replay.states.items()),
    }


def _message(entry: Entry, most: int) -> list[Any]:
    """Return mark, role, tokens, text and number of characters that are left out."""
    text = words(entry.message)
    return [entry.mark, entry.role, entry.tokens, text[:most], max(0, len(text) - most)]


def _block(name: str, value: Any) -> str:
    text = json_text(value).translate(_ESCAPED)
    return f'<script type="application/json" data-block="{name}">{text}</script>\n'


def _asset(name: str) -> str:
    return files("amplifier_context_cli.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
