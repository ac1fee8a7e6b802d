"""JSON that a tool returned, with its escapes read: for reading alone, what is sent and stored stays as it is.

Amplifier's tools return objects, and loops store these as JSON (`ToolResult.get_serialized_output` of the kernel);
tools of MCP nest them. An output of a thousand lines is then one line, and a name at the beginning of a line begins
with the letter of an escape.
"""

from __future__ import annotations

import re

_JSON = re.compile(r'\s*[\[{]\s*["\[{]')
_ESCAPE = re.compile(r'\\(?:(u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*)|(r\\n|[\\/"nrtbf]))')
_READ = {"n": "\n", "r": "\n", r"r\n": "\n", "t": "\t", "b": " ", "f": "\n"}
# Characters that control a terminal, the order in which others are shown, or hide: C0 and C1 without line end and tab,
# line and paragraph separators, embeddings, overrides and isolates of Unicode's bidirectional algorithm, zero-width
# spaces, format characters without use, tags, lone surrogates. Not the marks and joiners of scripts and emoji.
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u180e\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)
_NESTED = re.compile(r'"\s*[\[{]\s*\\"')  # a text that begins as JSON does


def read_escapes(text: str) -> str:
    """Return the text with its escapes read if it begins as JSON does; any other text as it is."""
    if "\\" not in text or _JSON.match(text) is None:
        return text
    once = _ESCAPE.sub(_read, text)
    return _ESCAPE.sub(_read, once) if _NESTED.search(text) else once


def _read(escape: re.Match[str]) -> str:
    """A lone surrogate becomes U+FFFD: UTF-8 has none. A control character, harmless as an escape, becomes a blank."""
    if escape[1]:
        read = bytes.fromhex(escape[1].replace("\\", "").replace("u", "")).decode("utf-16-be", "replace")
        return CONTROLS.sub(" ", read)
    return _READ.get(escape[2], escape[2])
