"""The pool and the queue of a session: kept with its state, offered to its tools, and listed in its views.

The list is a message of the history, as a hook's would be. It is appended when the items changed, so the prefix of the
view stays, and of several lists a compaction keeps the newest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import orjson

from ..config import Config
from ..items import ContextItem, ContextPool, ContextQueue
from ..items.injection import activate
from ..messages.parsing import Message
from ..rendering.quoting import quoted, single_line, without_surrogates

log = logging.getLogger(__name__)

_NOTICE = {"source": "hook", "hook_name": "context-items"}  # docs/kernel.md: such a message is no person's
_MOST_CHARS = 4_000  # characters of the list
_PER_TOKEN = 0.2  # characters of the list for each token of the budget: about a twentieth of it
_LINE = 200  # characters of one line


class SessionItems:
    """What a session keeps beside its conversation.

    Args:
        config: with the limits of pool and queue.
        pool: by default an empty one.
        queue: by default an empty one.

    Attributes:
        pool: items by id.
        queue: the newest items.
    """

    def __init__(
        self, config: Config, pool: ContextPool[Any] | None = None, queue: ContextQueue[Any] | None = None
    ) -> None:
        # An empty pool is false, and given all the same.
        self.pool: ContextPool[Any] = ContextPool(config.pool_limit) if pool is None else pool
        self.queue: ContextQueue[Any] = ContextQueue(config.queue_limit) if queue is None else queue
        self._listed = ""  # what the last list showed
        self._is_open = False  # what is saved later is of these very items

    def activate(self) -> None:
        """Offer pool and queue to the tools that this task, or a task it starts, runs from now on."""
        activate(self.pool, self.queue)

    def notice(self, budget: int) -> Message | None:
        """Return a message that lists the items, if they changed since the last one.

        Args:
            budget: tokens of the request, which bound the list.
        """
        body = self._list(min(_MOST_CHARS, int(budget * _PER_TOKEN)))
        if body == self._listed:
            return None
        self._listed = body
        text = quoted("items kept beside this conversation", body or "(none)")
        return {"role": "system", "content": text, "metadata": dict(_NOTICE)}

    def saved(self) -> dict[str, Any] | None:
        """Return what a resumed session needs; None while there never was an item."""
        if not (self.pool or self.queue or self._listed):
            return None
        return {
            "pool": [_saved(item) for item in self.pool],
            "queue": [_saved(item) for item in self.queue],
            "listed": self._listed,
        }

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Take up what was saved, into the pool and the queue that are there. No hook runs.

        Their limits and hooks are those of this process. Items that were put in before the session was opened stay.
        """
        if saved is None:
            self._is_open = True
            return
        pool = ContextPool.from_dict({"items": saved["pool"]})
        queue = list(map(ContextItem.from_dict, saved["queue"]))
        if not self._is_open:
            pool.replace_items([*pool.items, *(item for item in self.pool if item.id not in {one.id for one in pool})])
            queue += self.queue.items
        self.pool.replace_items(pool.items)
        self.queue.items = queue
        self._listed = saved["listed"]
        self._is_open = True

    def forget(self, forms: Collection[str]) -> None:
        """Drop the items that hold one of these texts."""
        self.pool.replace_items([item for item in self.pool.items if not _holds(item, forms)])
        self.queue.items = [item for item in self.queue.items if not _holds(item, forms)]
        self._listed = "" if any(form in self._listed for form in forms) else self._listed

    def clear(self) -> None:
        """Drop all items. No hook runs."""
        self.pool.replace_items([])
        self.queue.items = []
        self._listed = ""

    def _list(self, room: int) -> str:
        lines = ["pool, by id:", *(f"- [{item.id}] {item.description}" for item in self.pool.items)]
        lines = lines if self.pool else []
        if self.queue:
            lines += ["queue, newest last:", *(f"- {item.description or item.content}" for item in self.queue.items)]
        shown: list[str] = []
        for line in map(_short, lines):
            room -= len(line) + 1
            if room < 0:
                shown.append(f"[{len(lines) - len(shown):,} more lines]")
                break
            shown.append(line)
        return "\n".join(shown)


def _short(line: str) -> str:
    flat = single_line(line)
    return flat if len(flat) <= _LINE else flat[:_LINE] + " …"


def _saved(item: ContextItem[Any]) -> dict[str, Any]:
    """Return an item as JSON; a payload that is none becomes its text."""
    data = item.to_dict()
    try:
        orjson.dumps(data)
        return data
    except (TypeError, ValueError):
        log.warning("an item of type %s is saved as its text", type(item.content).__name__)
        return {key: value and without_surrogates(str(value)) for key, value in data.items()}


def _holds(item: ContextItem[Any], forms: Collection[str]) -> bool:
    text = "\n".join(map(str, item.to_dict().values()))
    return any(form in text for form in forms)
