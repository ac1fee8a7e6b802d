"""The core of the context managers: history that only grows, views that fit, nothing lost.

People with the kernel use a package such as `amplifier_context_simple`. People without it find here the manager, the
strategies that also run on a plain list of messages, and the counting of tokens.
"""

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
from .plugins import Plugins, hookimpl
from .stores import MemoryStore, Store, open_store
from .strategies import (
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
)
from .tokens import (
    HeuristicTokenCounter,
    TokenCounter,
    approx_token_counter,
    count_message_tokens,
    count_tokens,
    exact_token_counter,
)
from .transcript import Entry, Snapshot, Transcript

__all__ = [
    "ClearToolOutputs",
    "ClipToolOutputs",
    "CondenseChapters",
    "Config",
    "ConfigError",
    "ContextError",
    "ContextManager",
    "ContextOverflow",
    "DropChapters",
    "Entry",
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
    "hookimpl",
    "load_config",
    "open_store",
]
