"""An API like that of other frameworks, on the stores of the core.

One object is one conversation (`ContextStore`), made of typed messages; `compact_context` summarises its older part.
A host on the kernel needs none of this: `ContextManager` does more.
"""

from .blocks import (
    ContentBlock,
    ImageBlock,
    MediaType,
    OtherBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    from_dict,
    to_dict,
)
from .compaction import Complete, Transport, compact_context
from .contexts import ContextStore, MemoryContextStore, StoredContext
from .fitting import Fitted, fitted
from .typed import Message, Role

__all__ = [
    "Complete",
    "ContentBlock",
    "ContextStore",
    "Fitted",
    "ImageBlock",
    "MediaType",
    "MemoryContextStore",
    "Message",
    "OtherBlock",
    "Role",
    "StoredContext",
    "TextBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "Transport",
    "compact_context",
    "fitted",
    "from_dict",
    "to_dict",
]
