"""Entries, messages and session ids for tests of stores: ordinary ones, and odd ones that break stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.transcript.entry import Entry

from ..checks.corpus import conversations
from ..checks.message_shapes import Message

CREATED = "2026-02-03T04:05:06.789+00:00"

HOSTILE_IDS = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "hidden": ".hidden",
    "parent": "../escape",
    "absolute": "/tmp/escape",
    "inner path": "a/../../escape",
    "folder": "a/b",
    "backslashes": "..\\escape",
    "newline": "two\nlines",
    "tab": "a\tb",
    "nul": "a\0b",
    "escape": "a\x1b[31m",
    "delete": "a\x7f",
    "next line": "a\u0085b",
    "line separator": "a\u2028b",
    "right to left": "a\u202eb",
    "lone surrogate": "cut \ud83d",
    "300 characters": "x" * 300,
    "300 characters of many bytes": "読" * 300,
}
"""Invalid ids by their fault."""

ODD_IDS = [
    "plain",
    "PLAIN",
    "Plain",
    "two words",
    " spaces around ",
    "セッション",
    "세션-42",
    "naïve",
    "nai\u0308ve",
    "🚀 launch",
    "it's",
    'say "hi"',
    "`id`",
    "100%",
    "%2e%2e%2f",
    "%s%d",
    "under_score",
    "under-score",
    "{a}",
    "{b}",
    "}{",
    "{}",
    "*",
    "?",
    "[a-z]",
    "a:b",
    "a:b:c",
    "~root",
    "-rf",
    "$HOME",
    "a;b",
    "Robert'); drop table entries; --",
    "#1",
    "a&b|c<d>e",
    "x" * 200,
    "CON",
    "null",
    "0",
    "-1",
    "a.lock",
    "plain.lock",
    "plain.jsonl",
    "plain.tmp",
    "plain.checkpoint",
    "plain:checkpoint",
    "plain-archive",
    "context-messages.jsonl",
]
"""Valid ids, each of a session of its own."""

BEYOND = [4, 5, 10**6, -1]
"""Indices outside a history of three entries."""


def entry(
    seq: int,
    message: Message | str | None = None,
    *,
    session_id: str = "s",
    turn: int = 1,
    tokens: int = 7,
    created: str = CREATED,
    completed: str = "",
    response: Response | None = None,
) -> Entry:
    if message is None or isinstance(message, str):
        text = f"This is message {seq}." if message is None else message
        message = {"role": "user", "content": text, "metadata": {"timestamp": CREATED}}
    read, info = parse_message(message)
    return Entry.of(
        seq,
        read,
        info,
        turn=turn,
        tokens=tokens,
        session_id=session_id,
        created=created,
        completed=completed or None,
        response=response,
    )


def entries(first: int, last: int, *, session_id: str = "s") -> list[Entry]:
    return [_spoken(seq, session_id) for seq in range(first, last + 1)]


def _spoken(seq: int, session_id: str) -> Entry:
    kind, call = seq % 4, f"call_{seq // 4}"
    message: Message
    if kind == 1:
        message = {"role": "user", "content": f"Please look at src/module_{seq}.py."}
    elif kind == 2:
        asked = {"name": "read", "arguments": f'{{"path": "src/module_{seq}.py"}}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": asked}],
        }
    elif kind == 3:
        message = {"role": "tool", "tool_call_id": call, "name": "read", "content": f"def f_{seq}(): ...\n" * 3}
    else:
        message = {"role": "assistant", "content": f"It defines f_{seq}."}
    message["metadata"] = {"timestamp": CREATED}
    return entry(seq, message, session_id=session_id, turn=(seq + 3) // 4, tokens=5 + seq % 11)


def _user(content: Any, **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def _nested(depth: int) -> Any:
    value: Any = "deep down"
    for level in range(depth):
        value = {"in": value} if level % 2 else [value]
    return value


def odd_messages() -> dict[str, Message]:
    return {
        "newlines in text": _user("one\ntwo\r\nthree\rfour\n"),
        "what Unicode calls line ends": _user("one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1cseven\x1eeight"),
        "a line that looks like a record": _user('x\n{"role": "user", "content": "not a message"}\n'),
        "NUL characters": _user("before\0after\0", name="\0", metadata={"\0": "\0"}),
        "an escaped NUL": _user("\\u0000 and \\0"),
        "control characters": _user("".join(map(chr, range(32)))),
        "lone surrogates": _user("cut \ud83d", metadata={"low \udc00": ["\udfff\ud800"]}),
        "a byte order mark": _user("\ufeffmarked"),
        "noncharacters": _user("\uffff\ufffe\U0010ffff"),
        "many scripts": _user("読んで。 한국어 עברית ไทย 👩‍👩‍👧‍👦 e\u0301 é"),
        "empty text": {"role": "assistant", "content": ""},
        "blank text": {"role": "assistant", "content": " \n\t "},
        "no content": {"role": "assistant"},
        "null content": {"role": "assistant", "content": None},
        "no blocks": {"role": "assistant", "content": []},
        "empty block": {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        "integers past 64 bits": _user("n", metadata={"n": [2**63, -(2**63) - 1, 2**64, -(2**64), 10**400, 2**63 - 1]}),
        "digits that are text": _user("1" * 400, metadata={"9" * 30: "9" * 30}),
        "floats": _user(
            "n", metadata={"n": [0.1, -0.0, 1e308, 5e-324, 1.0, 1e22, 1e16, 0.1 + 0.2, 123456789.123456789]}
        ),
        "one, true and 1.0": _user("n", metadata={"n": [1, True, 1.0, 0, False, 0.0, -0.0, None, "1", "true", ""]}),
        "keys in their order": _user("n", metadata={"b": 1, "a": 2, "é": 3, "": 4, "B": 5, "10": 6, "9": 7}),
        "deep nesting": _user("n", metadata={"deep": _nested(96)}),
        "a wide object": _user("n", metadata={f"key {number}": number for number in range(2_000)}),
        "keys of the top that stores use": _user(
            "n", seq=9, turn=9, tokens=9, id="x", session_id="other", extra={"a": 1}, created="2001", crc=0, v=1, op="x"
        ),
        "an older module's timestamp": _user("n", timestamp="2020-01-01T00:00:00Z"),
        "an odd timestamp": _user("n", metadata={"timestamp": "yesterday \ud83d\0"}),
        "a timestamp that is none": _user("n", metadata={"timestamp": 17}),
        "SQL, globs and braces": _user("'; drop table entries; -- {0} %s %(a)s $1 :a ? * [a-z] \\ \\\\ \" ` {}"),
        "JSON in text": _user('{"role": "user", "content": "\\u2028\\ud83d"}'),
        "markup": _user("</context_record><system-reminder>x</system-reminder><!-- -->"),
        "call ids reused": {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "a", "name": "read", "input": {"n": 10**30}}],
            "tool_calls": [{"id": "a", "tool": "read", "arguments": {"n": 10**30}}, {"id": "a", "tool": "b"}],
        },
        "results in blocks": _user([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "x"}]}]),
        "a result that is an object": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_call_id": "a", "output": {"n": [1, None]}}],
        },
        "sealed thinking": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm\u2028", "signature": "c2lnbmVk" * 40},
                {"type": "redacted_thinking", "data": "cmVk"},
            ],
        },
        "instructions": {"role": "developer", "content": "Be careful."},
        "null metadata": _user("n", metadata=None, name=None, tool_calls=None, tool_call_id=None),
    }


def odd_entries(session_id: str = "s") -> list[Entry]:
    """Entries of every odd message, of the corpus of odd conversations, and with all an entry may know beside them."""
    messages: list[Message] = list(odd_messages().values())
    for conversation in conversations():
        messages.extend(message for message in conversation.messages if len(str(message.get("content"))) < 50_000)
    made = [entry(seq, message, session_id=session_id) for seq, message in enumerate(messages, 1)]
    made.extend(knowing(len(made) + 1, session_id))
    return made


def knowing(first: int, session_id: str = "s") -> list[Entry]:
    """Entries that know something their message does not say: other times, another session, responses."""
    usage = Usage(12_345, 678, 11_000, 1_345, "0.0471")
    message: Message = {"role": "assistant", "content": "Yes.", "metadata": {"timestamp": CREATED}}
    later = "2026-02-03T04:06:00.000+00:00"
    known: list[dict[str, Any]] = [
        {"created": later},
        {"completed": later},
        {"created": later, "completed": CREATED},
        {"created": "once upon a time", "completed": "\u2028 \0 \ud83d"},
        {"session_id": "another session"},
        {"session_id": "it's {another} 読 %s"},
        {"tokens": 0, "turn": 0},
        {"tokens": -1},
        {"tokens": 2**40, "turn": 2**31 + 5},
        {"response": Response()},
        {"response": Response("model-1", "provider", usage, "stop")},
        {"response": Response(usage=Usage(0))},
        {"response": Response(prefix="00ff")},
        {"response": Response(model="m", error="cut off \ud83d \0 \u2028 'quoted' 読\n")},
        {"response": Response("m", "p", Usage(2**63, 2**64)), "session_id": "x", "created": later, "tokens": 10**12},
    ]
    own: dict[str, Any] = {"session_id": session_id}
    return [entry(seq, message, **(own | more)) for seq, more in enumerate(known, first)]


def differing(found: Iterable[Entry], expected: Iterable[Entry]) -> str:
    """How two lists of entries differ, to the type of every number and the order of every key; empty if they do not."""
    ours, theirs = list(found), list(expected)
    if [one.seq for one in ours] != [one.seq for one in theirs]:
        return f"seqs are {_some(ours)}, not {_some(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        if one != other or repr(one) != repr(other):
            return f"{one.mark} is {repr(one)[:600]}, not {repr(other)[:600]}"
    return ""


def _some(listed: list[Entry]) -> str:
    seqs = [one.seq for one in listed]
    return f"{seqs}" if len(seqs) < 40 else f"{seqs[:20]} ... {seqs[-19:]} ({len(seqs)})"
