"""The core of the context managers: history that only grows, views that fit, nothing lost.

With the kernel, use a package such as `amplifier_context_simple`. Without it, use the manager, the strategies that also
run on a plain list of messages, and the token counters from here. A plug-in imports what it extends and the values that
it is given; docs/extending.md shows how. What stores share is in `amplifier_context_core.stores`.
"""

from .compaction.checkpoint import Chapter, DigestEntry, Draft, Fact, Segment
from .compaction.strategies import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    DropChapters,
    FitContextWindow,
    FoldRounds,
    Goal,
    KeepImportant,
    Strategy,
    SupersedeStaleReads,
    TrimRounds,
    TruncateToolOutputs,
    fold,
)
from .config import Config, load_config
from .errors import (
    ConfigError,
    ContextError,
    ContextOverflow,
    InvalidMessage,
    NotLoaded,
    PinRefused,
    PluginError,
    SessionInUse,
    SessionLost,
    StoreError,
)
from .manager import ContextManager
from .messages.tokens import (
    HeuristicTokenCounter,
    TokenCounter,
    approx_token_counter,
    count_message_tokens,
    count_tokens,
    exact_token_counter,
)
from .plugins import Plugins, hookimpl
from .rendering.renderer import RenderedMessage
from .rendering.rounds import Round
from .stores import MemoryStore, Store, open_store
from .transcript.entry import Entry
from .transcript.searchable import SearchIndex
from .transcript.transcript import Snapshot, Transcript

__all__ = [
    "Chapter",
    "ClearToolOutputs",
    "ClipToolOutputs",
    "CondenseChapters",
    "Config",
    "ConfigError",
    "ContextError",
    "ContextManager",
    "ContextOverflow",
    "DigestEntry",
    "Draft",
    "DropChapters",
    "Entry",
    "Fact",
    "FitContextWindow",
    "FoldRounds",
    "Goal",
    "HeuristicTokenCounter",
    "InvalidMessage",
    "KeepImportant",
    "MemoryStore",
    "NotLoaded",
    "PinRefused",
    "PluginError",
    "Plugins",
    "RenderedMessage",
    "Round",
    "SearchIndex",
    "Segment",
    "SessionInUse",
    "SessionLost",
    "Snapshot",
    "Store",
    "StoreError",
    "Strategy",
    "SupersedeStaleReads",
    "TokenCounter",
    "Transcript",
    "TrimRounds",
    "TruncateToolOutputs",
    "approx_token_counter",
    "count_message_tokens",
    "count_tokens",
    "exact_token_counter",
    "fold",
    "hookimpl",
    "load_config",
    "open_store",
]
