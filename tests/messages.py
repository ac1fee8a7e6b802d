"""Messages as tests write them: one by one, as conversations, and what a list of them shows.

Odd and hostile ones are in `amplifier_context_testing.checks.corpus`, any that can occur in `tests/laws/histories.py`.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from amplifier_context_core import approx_token_counter, count_tokens
from amplifier_context_testing import coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder

Message = dict[str, Any]
PNG_1X1 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_1X1}}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}  # as the kernel has it


def user(content: Any = "Go on.", **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def says(content: Any = "Done.", **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(*ids: str, name: str = "read", path: str = "src/a.py", arguments: Any = None, **more: Any) -> Message:
    """An assistant message with calls, as OpenAI spells them; of a path, or with these arguments."""
    given = f'{{"path": "{path}"}}' if arguments is None else json.dumps(arguments)
    listed = [{"id": id, "type": "function", "function": {"name": name, "arguments": given}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": listed, **more}


def result(id: str, content: Any = "out", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


def system(content: Any = "Be careful.", **more: Any) -> Message:
    return {"role": "system", "content": content, **more}


def carrier(
    text: str, vendor: str = "anthropic", model: str = "claude-opus-5", signature: str = "c2ln", **more: Any
) -> Message:
    """A message that carries a compaction which a provider made, as its module stores it."""
    block = {"type": "compaction", "content": text, "signature": signature}
    sealed = {"output": [{"type": "compaction", "encrypted_content": text}]}
    state = {"version": 1, "model": model, **(sealed if vendor == "openai" else {"block": block})}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", f"{vendor}:compaction": state}
    return user("Native compacted conversation.", metadata={**marks, **more})


def block(text: str) -> Message:
    return {"type": "text", "text": text}


def nested(levels: int, inner: Any) -> Any:
    """A value within so many lists."""
    for _ in range(levels):
        inner = [inner]
    return inner


def words(name: str, tokens: int) -> str:
    """Text of about so many tokens, whose words differ."""
    return " ".join(f"{name}{number}" for number in range(tokens * 4 // (len(name) + 4)))


def rounds(number: int, *, start: int = 0, output: int = 400) -> list[Message]:
    """Tool rounds of about `output` characters each, all different, ids included."""
    talk = ConversationBuilder()
    for place in range(start, start + number):
        call = f"call_{place}"
        talk.call(("read", {"path": f"src/file_{place}.py"}), ids=[call])
        text = f"file {place}: " + f"line_{place} = value_{place * 7919 % 10_007} " * (output // 25)
        talk.result(call, text[:output])
    return talk.messages


def work(number: int, *, task: str = "Do the work.", output: int = 400) -> list[Message]:
    return [{"role": "user", "content": task}, *rounds(number, output=output)]


def session(messages: int, seed: int = 1) -> list[Message]:
    return list(coding_session(messages, seed))


def text(view: Iterable[Message]) -> str:
    """Everything a view shows, as JSON text."""
    return json.dumps(list(view), ensure_ascii=False)


def digest(messages: Iterable[Message]) -> str:
    """Hash of messages, byte for byte."""
    return hashlib.sha256(text(messages).encode("utf-8", "surrogatepass")).hexdigest()


def size(messages: Iterable[Message]) -> int:
    """Tokens of messages, counted by the test itself."""
    return count_tokens(messages, approx_token_counter)


def shared_prefix(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages at the start are byte-identical, but for the mark of the last chapter, which is not sent."""

    def sent(message: Message) -> Message:
        metadata = {key: value for key, value in (message.get("metadata") or {}).items() if key != "cache_breakpoint"}
        return {**message, "metadata": metadata}

    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if text([sent(old)]) != text([sent(new)]):
            return place
    return min(len(before), len(after))


def bare(messages: Iterable[Message]) -> list[Message]:
    """Messages without the timestamp that storing adds."""
    plain: list[Message] = []
    for message in messages:
        kept = {key: value for key, value in message.items() if key != "metadata"}
        metadata = {key: value for key, value in (message.get("metadata") or {}).items() if key != "timestamp"}
        plain.append({**kept, "metadata": metadata} if metadata else kept)
    return plain
