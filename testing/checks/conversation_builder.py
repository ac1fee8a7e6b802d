"""A builder of conversations for tests: one short line per message, in any of the spellings real logs use."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any, Literal

from .message_shapes import Message

Shape = Literal["openai", "kernel", "anthropic"]


class ConversationBuilder:
    """Messages in the making. Ids are handed out in order, so that building twice gives the same conversation."""

    def __init__(self, shape: Shape = "openai") -> None:
        self.messages: list[Message] = []
        self._shape: Shape = shape
        self._made = 0

    def add(self, role: str, content: Any, **more: Any) -> ConversationBuilder:
        self.messages.append({"role": role, "content": content, **more})
        return self

    def system(self, text: str, **more: Any) -> ConversationBuilder:
        return self.add("system", text, **more)

    def user(self, content: Any, **more: Any) -> ConversationBuilder:
        return self.add("user", content, **more)

    def say(self, content: Any, **more: Any) -> ConversationBuilder:
        """Add an assistant message without calls."""
        return self.add("assistant", content, **more)

    def call(
        self, *calls: tuple[str, dict[str, Any]], text: str | None = None, ids: list[str] | None = None, **more: Any
    ) -> list[str]:
        """Add an assistant message with calls; return their ids.

        Args:
            text: text beside the calls; without it OpenAI's shape has null as content.
        """
        names = ids or [self._new_id() for _ in calls]
        self.messages.append({**call_message(self._shape, list(zip(names, calls, strict=True)), text), **more})
        return names

    def result(self, call_id: str, content: Any, **more: Any) -> ConversationBuilder:
        if self._shape == "anthropic":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
            return self.add("user", [block])
        return self.add("tool", content, tool_call_id=call_id, **more)

    def round(self, name: str, arguments: dict[str, Any], output: str, text: str | None = None) -> ConversationBuilder:
        (made,) = self.call((name, arguments), text=text)
        return self.result(made, output)

    def work(self, rounds: int, topic: str) -> ConversationBuilder:
        for number in range(rounds):
            path = f"src/{topic}/part_{number}.py"
            body = "\n".join(f"def {topic}_{number}_{line}(value): return value + {line}" for line in range(12))
            if number % 3 == 2:
                self.round("search", {"text": f"{topic}_{number - 1}_3"}, f"{path}:3: {topic}_{number - 1}_3(1)")
            else:
                self.round("read", {"path": path}, body, text=f"I read {path}.")
        return self

    def _new_id(self) -> str:
        self._made += 1
        return f"call_{self._made:04d}"


def call_message(shape: Shape, calls: list[tuple[str, tuple[str, dict[str, Any]]]], text: str | None) -> Message:
    if shape == "openai":
        listed = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, (name, arguments) in calls
        ]
        return {"role": "assistant", "content": text, "tool_calls": listed}
    texts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    kind = "tool_use" if shape == "anthropic" else "tool_call"
    blocks = [{"type": kind, "id": id, "name": name, "input": arguments} for id, (name, arguments) in calls]
    if shape == "anthropic":
        return {"role": "assistant", "content": [*texts, *blocks]}
    seen: list[dict[str, Any]] = [{**block, "visibility": None} for block in [*texts, *blocks]]
    listed = [{"id": id, "tool": name, "arguments": arguments} for id, (name, arguments) in calls]
    return {"role": "assistant", "content": seen, "tool_calls": listed}


def png(width: int = 1, height: int = 1) -> str:
    """Return a real grey PNG in base64; large ones compress to little, so only the header shows the size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\x00" + b"\x80" * width) * height, 9)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def image_block(width: int = 1, height: int = 1) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(width, height)}}


def image_url(width: int = 1, height: int = 1) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(width, height)}"}}
