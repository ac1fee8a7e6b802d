"""Shared by the tests of compat: blocks and messages, also generated, and a model."""

import base64
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from amplifier_context_core.compat import (
    ContentBlock,
    ImageBlock,
    MemoryContextStore,
    Message,
    OtherBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.messages import SIGNED

from ..laws.histories import ARGUMENTS, IDS, JSON, TEXTS

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55")

ENCODED_PNG = base64.b64encode(PNG).decode()

EXTRA = st.dictionaries(st.sampled_from(["cache_control", "visibility", "x"]), JSON, max_size=2)
MEDIA_TYPES = st.sampled_from(["image/jpeg", "image/png", "image/gif", "image/webp"])
TEXT_BLOCKS = st.builds(TextBlock, TEXTS, extra=EXTRA)
IMAGE_BLOCKS = st.builds(ImageBlock, MEDIA_TYPES, st.binary(min_size=1, max_size=64), extra=EXTRA)
LINKED = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
DOCUMENT = {"type": "document", "title": "notes", "deep": [{"x": [1, 2.5, None]}]}
OTHER_BLOCKS = st.builds(OtherBlock, st.sampled_from([SIGNED, LINKED, DOCUMENT]))
USE_BLOCKS = st.builds(ToolUseBlock, IDS, st.sampled_from(["read", "bash"]), ARGUMENTS, extra=EXTRA)
PARTS = st.lists(st.one_of(TEXT_BLOCKS, IMAGE_BLOCKS, OTHER_BLOCKS), max_size=3)
RESULT_BLOCKS = st.builds(ToolResultBlock, IDS, st.one_of(TEXTS, PARTS), st.booleans(), extra=EXTRA)
BLOCKS: st.SearchStrategy[ContentBlock] = st.one_of(TEXT_BLOCKS, IMAGE_BLOCKS, USE_BLOCKS, RESULT_BLOCKS, OTHER_BLOCKS)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(BLOCKS, max_size=4),
    extra=st.fixed_dictionaries({}, optional={"metadata": st.dictionaries(st.text(max_size=4), JSON, max_size=2)}),
)


def user(text: str = "Go on.") -> Message:
    return Message("user", [TextBlock(text)])


def says(text: str = "Done.") -> Message:
    return Message("assistant", [TextBlock(text)])


def calls(*ids: str, name: str = "read") -> Message:
    return Message("assistant", [ToolUseBlock(id, name, {"path": f"src/{id}.py"}) for id in ids])


def answers(*ids: str, content: str = "out") -> Message:
    return Message("user", [ToolResultBlock(id, content) for id in ids])


def talk(count: int) -> list[Message]:
    """Return `count` numbered messages, a user's and an assistant's in turn."""
    return [user(f"question {n}") if n % 2 == 0 else says(f"answer {n}") for n in range(count)]


def dicts(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


class Scribe:
    """A model that summarises, and records its prompts."""

    def __init__(self, summary: Any = "They talked.") -> None:
        self.summary = summary
        self.prompts: list[str] = []

    async def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        if isinstance(self.summary, BaseException):
            raise self.summary
        return self.summary

    @property
    def prompt(self) -> str:
        (prompt,) = self.prompts
        return prompt


async def of(*messages: Message | dict[str, Any]) -> MemoryContextStore:
    return await MemoryContextStore.from_history(messages)
