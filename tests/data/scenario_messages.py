"""Messages of the sessions that the guard of views plays."""

import json
from collections.abc import Sequence
from typing import Any

from amplifier_context_testing import coding_session
from tests.messages import result

Message = dict[str, Any]


def work(messages: int = 150, seed: int = 7) -> list[Message]:
    return list(coding_session(messages, seed))


def smallest(messages: Sequence[Message]) -> list[str]:
    """Return the marks of the messages without calls or results, the smallest first."""
    plain = [number for number, message in enumerate(messages, 1) if not {"tool_calls", "tool_call_id"} & {*message}]
    return [f"m{number}" for number in sorted(plain, key=lambda number: len(str(messages[number - 1])))]


def thoughtful(messages: Sequence[Message]) -> list[Message]:
    """Return the same session, each answer with a thought, which a provider would replay from its wire form."""
    made: list[Message] = []
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            thought = {"type": "thinking", "thinking": f"Thought {number}. " * 20, "signature": f"sig-{number}"}
            words = [{"type": "text", "text": message["content"]}] if message.get("content") else []
            uses = [{"type": "tool_use", "id": call["id"]} for call in message.get("tool_calls") or ()]
            wire = {"wire_content": [thought, *words, *uses]}
            message = {**message, "content": [thought, *words], "metadata": {"anthropic": wire}}
        made.append(message)
    return made


def carrier(vendor: str, model: str, text: str) -> Message:
    """Return a message with a provider's own compaction."""
    block = {"type": "compaction", "content": text, "signature": "c2ln"}
    state: dict[str, Any] = {"version": 1, "model": model, "block": block}
    if vendor == "openai":
        state = {"version": 1, "model": model, "output": [{"type": "compaction", "encrypted_content": text}]}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", f"{vendor}:compaction": state}
    return {"role": "user", "content": "Native compacted conversation.", "metadata": marks}


def call(id: str, tool: str = "read_file") -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": id, "tool": tool, "arguments": {"path": id}}]}


def large_outputs() -> list[Message]:
    """Return rounds whose outputs are of every form that is described or shown as a table."""
    rows = [{"id": number, "name": f"part-{number}", "cost": number * 7 % 91} for number in range(150)]
    outputs = {
        "json": json.dumps(rows),
        "nested": json.dumps({"rows": rows, "meta": {"page": 1, "of": 9}}),
        "json-lines": "\n".join(map(json.dumps, rows)),
        "csv": "\n".join(f"{row['id']},{row['name']},{row['cost']}" for row in rows),
        "log": "\n".join(f"2026-01-01 00:00:{n % 60:02} {'ERROR' if n == 77 else 'info'} step {n}" for n in range(200)),
        "listing": "\n".join(f"-rw-r--r-- 1 me me {n * 37} Jan  1 00:00 file_{n}.py" for n in range(150)),
        "diff": "\n".join(f"@@ -{n},2 +{n},2 @@\n-old_{n} = {n}\n+new_{n} = {n}" for n in range(1, 90)),
        "prose": "It goes on and on, and says little. " * 400,
    }
    return [one for id, text in outputs.items() for one in (call(f"big-{id}"), result(f"big-{id}", text))]
