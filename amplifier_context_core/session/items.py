"""The pool and the queue of a session: kept with its state, offered to its tools, and listed in its views.

A view ends with the list when the items changed since the last one. The history gets it with the answer, as a message
of a hook: so the prefix of the view stays, and of several lists a compaction keeps the newest.
"""

from __future__ import annotations

import json
import logging
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

from ..config import Config
from ..futures import in_thread
from ..items import ContextItem, ContextPool, ContextQueue
from ..items.function_tools import keep_item
from ..items.injection import Offer, activate, withdraw
from ..items.item import KEPT, item_form_in, item_of, label_of, payload_text, readable_text
from ..messages.parsing import Message, copy_checked, metadata_of, text_of
from ..rendering.quoting import quoted, single_line, without_surrogates
from ..transcript.recalled import item_mark
from ..transcript.redaction import forms_of
from ..view.session_state import SavedItems

log = logging.getLogger(__name__)

_NOTICE = {"source": "hook", "hook_name": "context-items"}  # docs/kernel.md: such a message is no person's
_MOST_CHARS = 4_000  # characters of the list
_PER_TOKEN = 0.2  # characters of the list for each token of the budget: about a twentieth of it
_BULLET = "- "  # begins the line of an item
_LINE = 200  # characters of one line
_READ = 4_000  # characters of a text that its line is made of: a result of a tool may have megabytes
_MOST_IDS = 20  # that one label is searched for
_MIN_MATCHED = 8  # characters; a shorter content in a longer result may be there by chance
# White space differs between writers of JSON. The kernel removes control characters and surrogates (`ToolResult`).
_LOST = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class ItemList:
    text: str = ""  # the lines that a request has room for, and how many are left out; empty if there are no items
    whole: str = ""  # the same with the room of a large budget
    lines: int = 0  # number of lines that the text shows

    def shows(self, other: ItemList) -> bool:
        """True if it says the same as another list, or shows the same items and is no longer.

        So a list that was made for a small budget stays in requests of larger ones: two budgets in turn would otherwise
        add a list with each request. A change of what neither list has room for adds none.
        """
        if self.text and self.text == other.text:  # unknown in a resumed session
            return True
        return self.whole == other.whole and self.lines <= other.lines

    def is_among(self, messages: Iterable[Message]) -> bool:
        content = self.message["content"]
        return any(is_list(one) and text_of(one.get("content")) == content for one in messages)

    @property
    def message(self) -> Message:
        text = quoted("items kept beside this conversation", self.text or "(none)")
        return {"role": "system", "content": text, "metadata": dict(_NOTICE)}


class SessionItems:
    """What a session keeps beside its conversation."""

    def __init__(
        self, config: Config, pool: ContextPool[Any] | None = None, queue: ContextQueue[Any] | None = None
    ) -> None:
        # An empty pool is false, and given all the same.
        self.pool: ContextPool[Any] = ContextPool(config.pool_limit) if pool is None else pool
        self.queue: ContextQueue[Any] = ContextQueue(config.queue_limit) if queue is None else queue
        # What the last request ended with, until the history has it, and the newest seq of that request; None if its
        # items had not changed. An attempt to record it that was cut off may have succeeded.
        self.sent_list: tuple[ItemList, int] | None = None
        self._offer = Offer()
        self._listed = ItemList()  # the last one
        self._is_open = False  # what is saved later is of these very items
        self._saved: list[ContextItem[Any]] = []  # the items of the last save

    def activate(self) -> None:
        """Offer pool and queue to the tools that this task, or a task it starts, runs from now on."""
        self._offer.offered = (self.pool, self.queue)
        activate(self._offer)

    def withdraw(self) -> None:
        withdraw(self._offer)

    async def collect(self, result: object, text_of: Callable[[Any], str]) -> str | None:
        """Keep the item in the result of a plain tool, as ``tool:post`` has it, as one of a function tool; return what
        the model is to read in its place; None if it carries no item that can be kept.
        """
        form = item_form_in(result)
        item = await in_thread(item_of, form, self._all) if form else None
        if item is None:
            return None
        shown = await keep_item(item, self.pool, self.queue)
        return text_of(shown) if any(item is kept for kept in self._all) else None

    def changed_list(self, budget: int) -> ItemList | None:
        """Return a list of the items; None if the last one that was `noted` shows them. The budget is in tokens."""
        lines = self._lines()
        whole, _ = _within(lines, _MOST_CHARS)
        text, shown = _within(lines, min(_MOST_CHARS, int(budget * _PER_TOKEN)))
        listed = ItemList(text, whole, shown)
        return None if self._listed.shows(listed) else listed

    def noted(self, listed: ItemList | None) -> None:
        """Note the last list of the history; None if it is not known, so that the next request lists the items."""
        self._listed, self.sent_list = listed or ItemList(), None

    def saved(self) -> SavedItems | None:
        """Return None while there never was an item."""
        self._saved = self._all
        if not (self.pool or self.queue or self._listed.whole):
            return None
        pool, queue = ([_saved(item) for item in items] for items in (self.pool, self.queue))
        return SavedItems(pool, queue, self._listed.whole, self._listed.lines)

    @property
    def is_saved(self) -> bool:
        now = self._all
        return len(now) == len(self._saved) and all(map(operator.is_, now, self._saved))

    def restore(self, saved: SavedItems | None) -> None:
        """Add the saved items to the pool and the queue that are there. No hook runs.

        Their limits and hooks are those of this process. Items that were put in before the session was opened stay.
        """
        if saved is None:
            self._is_open = True
            return
        pool, queue = (list(map(ContextItem.from_dict, items)) for items in (saved.pool, saved.queue))
        if not self._is_open:
            ids = {item.id for item in pool}
            pool += (item for item in self.pool if item.id not in ids)
            queue += self.queue
        self.pool.replace_items(pool)
        self.queue.replace_items(queue)
        self._listed = ItemList(whole=saved.listed, lines=saved.lines)
        self._is_open = True

    def concerned(
        self, forms: Collection[str], results: Collection[str], lines: Collection[str] = ()
    ) -> list[ContextItem[Any]]:
        """Return the items to forget: those that hold one of the texts `forms`, and those that what is erased shows.

        Args:
            results: of tools, that are erased; they are an item, or name it.
            lines: of lists, that are erased.
        """
        return [item for item in self._all if _holds(item, forms) or _is_in(item, results) or line_of(item) in lines]

    def forget(self, items: Collection[ContextItem[Any]], forms: Collection[str]) -> None:
        """Drop items, and list what is left once more if the last list shows one of them, or one of these texts."""
        for holder in (self.pool, self.queue):
            holder.replace_items([item for item in holder if not any(item is one for one in items)])
        self.sent_list = None  # the next request has another one
        if lists_any(self._listed.whole, map(line_of, items)) or self.lists_text(forms):
            self.noted(None)

    def lists_text(self, forms: Collection[str]) -> bool:
        """True if the last list, or the one that was sent last, has one of these texts; the item may be gone."""
        sent = self.sent_list[0].whole if self.sent_list else ""
        return any(form in text for form in forms for text in (self._listed.whole, sent))

    def clear(self) -> None:
        """No hook runs."""
        self.pool.replace_items(())
        self.queue.replace_items(())
        self.noted(None)

    @property
    def _all(self) -> list[ContextItem[Any]]:
        return [*self.pool.items, *self.queue.items]

    def _lines(self) -> list[str]:
        lines = ["pool, by id:", *map(line_of, self.pool.items)] if self.pool else []
        return [*lines, "queue, newest last:", *map(line_of, self.queue.items)] if self.queue else lines


def _within(lines: Sequence[str], room: int) -> tuple[str, int]:
    """Return the first lines that fit into a room of characters, with how many more there are, and their number."""
    ends = accumulate(len(line) + 1 for line in lines)
    shown = sum(1 for end in ends if end <= room)
    more = [f"[{len(lines) - shown:,} more lines]"] if shown < len(lines) else []
    return "\n".join([*lines[:shown], *more]), shown


def is_list(message: Message) -> bool:
    return metadata_of(message).get("hook_name") == _NOTICE["hook_name"]


def lines_of_items(message: Message) -> set[str]:
    """Return one for each item that the message shows; none of a message that is no list."""
    text = text_of(message.get("content")) if is_list(message) else ""
    return {line for line in text.split("\n") if line.startswith(_BULLET)}


def line_of(item: ContextItem[Any]) -> str:
    if item.id is not None:
        return listed_line(label_of(item))
    described = "" if item.description is None else payload_text(item.description)
    return listed_line(described or payload_text(item.content))


def listed_line(text: str) -> str:
    flat = single_line(f"{_BULLET}{text[:_READ]}")
    return flat if len(flat) <= _LINE else flat[:_LINE] + " …"


def kept_labels(results: Iterable[str]) -> list[str]:
    """Return the labels of items that results of tools say were kept, those that a pool has evicted too."""
    texts = [text for result in results if KEPT in result for text in (result, *_decoded(result))]
    labels = [text.split(KEPT, 1)[1] for text in texts if KEPT in text]
    return [label for label in labels if label.startswith("[")]


def recall_lines(items: Iterable[ContextItem[Any]], labels: Iterable[str] = ()) -> set[str]:
    """Return marks and lines by which recalled texts name these items of the pool, and those with these labels."""
    named = [item for item in items if isinstance(item.id, str)]
    lines = {line for item in named for line in (item_mark(item.id or ""), single_line(label_of(item)))}
    for label in labels:
        lines |= {single_line(label), *map(item_mark, _ids_in(label))}
    return lines


def _ids_in(label: str) -> Iterator[str]:
    """Yield what may be the id in a label: id and description may hold brackets."""
    end = 0
    for _ in range(_MOST_IDS):
        end = label.find("] ", end + 1)
        if end < 0 or not label.startswith("["):
            return
        yield label[1:end]


def _decoded(text: str) -> list[str]:
    try:
        return list(_strings_in(json.loads(text)))
    except (ValueError, RecursionError):
        return []


def lists_any(text: str, lines: Iterable[str]) -> bool:
    return not set(text.split("\n")).isdisjoint(lines)


def _is_in(item: ContextItem[Any], results: Collection[str]) -> bool:
    """True if one of these results of tools is this item, may be this item, or says that it was kept."""
    if not results:
        return False
    if item.id is not None:
        return _any_quotes(label_of(item), results)
    content = readable_text(item.content)
    if content is None:
        return True
    texts = {content, *_json_texts(item.content)}
    return any(text in results if len(text) < _MIN_MATCHED else _any_quotes(text, results) for text in texts)


def _any_quotes(text: str, results: Collection[str]) -> bool:
    """True if one of these results has a text: as it is, as escaped in JSON, or with other white space."""
    forms, bare = forms_of(text), _LOST.sub("", text)
    return any(
        any(form in result for form in forms) or (len(bare) >= _MIN_MATCHED and bare in _LOST.sub("", result))
        for result in results
    )


def _json_texts(content: object) -> set[str]:
    """Return a payload as JSON, with and without characters that are not ASCII; empty if that cannot be made."""
    try:
        return {json.dumps(content, default=str, ensure_ascii=ascii_only) for ascii_only in (True, False)}
    except Exception:  # noqa: BLE001 - keys that JSON has not, an object that holds itself, or a fault of its code
        return set()


def _saved(item: ContextItem[Any]) -> dict[str, Any]:
    return {key: _as_json(value) for key, value in item.to_dict().items()}


def _as_json(value: object) -> Any:
    """Return a value as JSON data; of one that is none, its text, or without one the name of its type."""
    try:
        return copy_checked(value)
    except Exception:  # noqa: BLE001 - `InvalidMessage`, or a fault in a mapping of other people's code
        log.warning("what an item has of type %s is saved as its text", type(value).__name__)
        return without_surrogates(payload_text(value))


def _in_quotes(text: str) -> set[str]:
    """Return a text as Python writes it inside the text of an object: in single quotes, and in double quotes."""
    return {repr(f"{quote}{text}")[2:-1] for quote in "\"'"}


def _holds(item: ContextItem[Any], forms: Collection[str]) -> bool:
    """True if an item has one of these texts, or may have it: its payload cannot be read."""
    values = [value for value in item.to_dict().values() if value is not None]
    texts = [readable_text(value) for value in values]
    if not forms or None in texts:
        return bool(forms)
    quoted_forms = {*forms, *(form for text in forms for form in _in_quotes(text))}
    if any(form in text for text in texts if text is not None for form in quoted_forms):
        return True
    try:
        return any(form in text for text in _strings_in(values) for form in forms)
    except Exception:  # noqa: BLE001 - to go through it is other people's code
        return True


def _strings_in(value: object) -> Iterator[str]:
    """Yield all strings in dictionaries, lists, tuples and sets, each of these once."""
    left, seen = [value], set[int]()
    while left:
        one: Any = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (dict, list, tuple, set, frozenset)):
            inside = cast("Collection[object]", one)
            if id(inside) not in seen:
                seen.add(id(inside))
                left.extend(inside)
                left.extend(cast("dict[object, object]", one).values() if isinstance(one, dict) else ())
