"""What an agent keeps beside its conversation: typed items, in a bounded queue or in a pool by id.

A `ContextQueue` is a window of the newest items. A `ContextPool` holds documents by id, with descriptions by which some
of them are selected. Both call hooks around their changes, can be branched, and are written as plain dictionaries.
"""

from ..errors import UnregisteredHookError
from .context_pool import ContextPool
from .context_queue import ContextQueue
from .function_tools import tool_from_function
from .hooks import ContextPoolHook, ContextQueueHook, HookRegistry, hook
from .item import ContextItem

__all__ = [
    "ContextItem",
    "ContextPool",
    "ContextPoolHook",
    "ContextQueue",
    "ContextQueueHook",
    "HookRegistry",
    "UnregisteredHookError",
    "hook",
    "tool_from_function",
]
