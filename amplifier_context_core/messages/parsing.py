"""Reading the kernel's message dicts without loss.

A message arrives as any JSON object that hosts, loops and providers have been seen to store (KERNEL.md lists the
shapes). `parse_message` takes it in once: an isolated copy, and a `MessageInfo` of what the rest of the core needs to
know (role, calls made, calls answered, whether a human wrote it). History keeps what it was given; shapes that
providers refuse are mended in the view. Only two code units that stand for one character become that character, for
they do in every store.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard, cast

import orjson

from ..errors import InvalidMessage

Message = dict[str, Any]

ROLES = frozenset({"system", "developer", "user", "assistant", "function", "tool"})
SYSTEM_ROLES = frozenset({"system", "developer"})
CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning"})
INJECTED_SOURCES = frozenset({"hook", "context-compaction"})  # KERNEL.md: marks of text no human wrote
LOADED_TOOLS = "openai:tool_search_items"  # KERNEL.md: dropping it makes tools vanish for the model
MAX_DEPTH = 100  # levels of nesting; deeper input is an attack on recursion, not a message
_ARGUMENTS_DEPTH = MAX_DEPTH - 8  # levels that arguments given as text may add: calls stand a few levels deep

_LONG_NUMBER = re.compile(r"\d{20}")  # digits; 64 bits have at most 20
_LARGEST = 10**4_300  # integers of more digits Python refuses to write as text (sys.set_int_max_str_digits)
_UNCHANGING = frozenset({bool, type(None)})  # types of JSON data that need no copy and no check
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"


class Call(NamedTuple):
    """One tool call as its message states it; `name` is empty where it has none.

    `arguments` is what the message gives, any JSON value, untouched. `arguments_of` says what that means.
    """

    id: str
    name: str
    arguments: Any


class Result(NamedTuple):
    """One tool result: the call it answers and its content (text, blocks or any JSON), untouched."""

    call_id: str
    content: Any
    name: str | None = None


class MessageInfo(NamedTuple):
    """What a message says about itself.

    Attributes:
        role: one of ROLES.
        call_ids: ids of the tool calls it makes, in order.
        answered_ids: ids of the tool calls that it answers, in order.
        human: a human wrote it (KERNEL.md: not every ``role: user`` is).
    """

    role: str
    call_ids: tuple[str, ...]
    answered_ids: tuple[str, ...]
    human: bool


ParsedMessage = tuple[Message, MessageInfo]


def parse_message(raw: object) -> ParsedMessage:
    """Check a message and copy it, so that nothing the caller does later reaches history.

    Raises:
        InvalidMessage: not an object, no or unknown role, content that is neither text, null nor blocks, a call or
            result without an id, or anything JSON cannot hold. The field is named.
    """
    if raw.__class__ is not dict and not isinstance(raw, Mapping):
        raise InvalidMessage("message", f"must be an object, got {type(raw).__name__}")
    message: Message = copy_checked(cast(object, raw))
    role = message.get("role")
    if role is None:
        raise InvalidMessage("role", "is missing")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidMessage("role", f"must be one of {', '.join(sorted(ROLES))}")
    metadata = message.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidMessage("metadata", f"must be an object or null, got {_kind(metadata)}")
    content = message.get("content")
    _check_content(content, "content")
    _check_calls(message)
    in_blocks = content.__class__ is list
    answers = tuple(result.call_id for result in results_of(message)) if in_blocks or role == "tool" else ()
    if role == "tool" and not answers:
        raise InvalidMessage("tool_call_id", "a tool result needs the id of the call it answers")
    # A call id may stand in a content block and in `tool_calls`: one call. Twice in one list: two calls.
    calls = tuple(call.id for call in calls_of(message)) if in_blocks or message.get("tool_calls") else ()
    return message, MessageInfo(role, calls, answers, is_human(message))


def calls_of(message: Message) -> Iterator[Call]:
    """The tool calls of a message, whichever shape they have; a call stated twice (block and list) comes once."""
    listed = message.get("tool_calls")
    ids: set[str] = set()
    if isinstance(listed, list):
        for item in cast("list[dict[str, Any]]", listed):
            ids.add(item["id"])
            yield listed_call(item)
    for block in blocks_of(message):
        if block.get("type") in CALL_BLOCKS and block["id"] not in ids:
            yield block_call(block)


def listed_call(item: Mapping[str, Any]) -> Call:
    """The call that an item of `tool_calls` states, in OpenAI's shape (`function`) or the kernel's (`tool`)."""
    function = item.get("function")
    source = cast("dict[str, Any]", function) if isinstance(function, dict) else item
    name = source.get("name") or item.get("tool") or item.get("name")
    return Call(item["id"], _name(name), source.get("arguments", item.get("input")))


def block_call(block: Mapping[str, Any]) -> Call:
    """The call that a content block states."""
    return Call(block["id"], _name(block.get("name") or block.get("tool")), block.get("input", block.get("arguments")))


def arguments_of(call: Call) -> dict[str, Any]:
    """Return the object that the arguments of a call mean: the one reading of them, wherever they are shown.

    An object means itself, and so does the text of one. Another value is put under ``value``. Text that is no JSON (cut
    off, malformed, nested too deep for a message) is put under ``unparsed_arguments``. Nothing means no arguments.
    """
    given = call.arguments
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, str):
        try:
            given = _parsed_arguments(given)
        except ValueError:
            return {"unparsed_arguments": given}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {"value": given}


def is_object_text(arguments: object) -> TypeGuard[str]:
    """True if these arguments are the text of an object, as OpenAI's shape has them."""
    try:
        return isinstance(arguments, str) and isinstance(_parsed_arguments(arguments), dict)
    except ValueError:
        return False


def arguments_text(call: Call) -> str:
    """The arguments of a call as text: the text that was given, or the JSON of the object they mean."""
    return call.arguments if isinstance(call.arguments, str) else json_text(arguments_of(call))


def results_of(message: Message) -> Iterator[Result]:
    """The tool results of a message: a ``role: tool`` message, or ``tool_result`` blocks (Anthropic's and kernel's)."""
    if message["role"] == "tool" and _is_id(message.get("tool_call_id")):
        name = message.get("name")
        yield Result(message["tool_call_id"], message.get("content"), name if isinstance(name, str) else None)
        return
    for block in blocks_of(message):
        if block.get("type") == "tool_result":
            yield Result(block_answers(block), block.get("output", block.get("content")))


def block_answers(block: Mapping[str, Any]) -> str:
    """The call id a ``tool_result`` block answers: the kernel says `tool_call_id`, Anthropic `tool_use_id`."""
    return cast(str, block.get("tool_call_id") or block.get("tool_use_id") or "")


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """The content blocks of a message; none when its content is text or null."""
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def metadata_of(message: Message) -> dict[str, Any]:
    """The metadata of a message, empty when there is none. Do not mutate."""
    metadata = message.get("metadata")
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}


def text_of(content: object) -> str:
    """What a content says in words: text, or its text blocks joined by newlines; results nested in it included.

    Thinking is left out: it is the model's own state, not something said.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for block in cast("list[object]", content):
        if not isinstance(block, dict):
            continue
        block = cast("dict[str, Any]", block)
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append(block["text"])
        elif kind == "tool_result":
            parts.append(text_of(block.get("output", block.get("content"))))
    return "\n".join(part for part in parts if part)


def json_text(value: object) -> str:
    """JSON text of checked data, for counting and for showing; integers past 64 bits included."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (orjson.JSONEncodeError, UnicodeError):
        return json.dumps(value)


def result_text(content: object) -> str:
    """What a tool returned, in words: its text, or the JSON of an object."""
    return json_text(cast(object, content)) if isinstance(content, dict) else text_of(content)


def is_human(message: Message) -> bool:
    """Did a human write it? Not: injected by hooks, ephemeral, a bare reminder block, or only tool results or calls."""
    if message["role"] != "user":
        return False
    metadata = metadata_of(message)
    if metadata.get("ephemeral") is True or metadata.get("source") in INJECTED_SOURCES:
        return False
    content = message.get("content")
    results = 0
    if isinstance(content, list):
        said = [block for block in blocks_of(message) if block.get("type") != "tool_result"]
        if any(block.get("type") != "text" for block in said):
            return True
        results = len(cast("list[object]", content)) - len(said)
        content = "\n".join(str(block.get("text", "")) for block in said)
    if not isinstance(content, str) or not content.strip():
        return not results and not message.get("tool_calls")
    return not content.lstrip().startswith(_REMINDER) or _says_more_than_reminders(content)


def _says_more_than_reminders(text: str) -> bool:
    place = 0
    while (start := text.find(_REMINDER, place)) >= 0 and (end := text.find(_REMINDER_END, start)) >= 0:
        if text[place:start].strip():
            return True
        place = end + len(_REMINDER_END)
    return text[place:].strip() != ""


def is_signed(message: Message) -> bool:
    """Does it carry thinking that a provider signed or sealed? Then it is kept byte-exact or not at all."""
    for block in blocks_of(message):
        kind = block.get("type")
        if kind == "redacted_thinking" or kind == "reasoning":
            return True
        if kind == "thinking" and (block.get("signature") or block.get("content")):
            return True
    return False


def copy_message(message: Message) -> Message:
    """An isolated copy of a stored message, for handing out. Texts are shared (they cannot change)."""
    return copy_json(message)


def copy_json(value: Any) -> Any:
    """A deep copy of JSON data that was checked before."""
    kind: type = value.__class__
    if kind is dict:
        return {
            key: item if item.__class__ is str or item is None else copy_json(item)
            for key, item in cast("dict[str, Any]", value).items()
        }
    if kind is list:
        return [copy_json(item) for item in cast("list[Any]", value)]
    return value


class _NotJson(Exception):
    """Carries the path of the offending value up through the copy."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


def copy_checked(raw: object) -> Any:
    """A deep copy of `raw` as plain JSON data.

    Raises:
        InvalidMessage: something in it is not JSON (bytes, sets, objects, NaN, keys that are no strings) or nests
            deeper than MAX_DEPTH levels.
    """
    return _copy_within(raw, MAX_DEPTH)


def _copy_within(raw: object, depth: int) -> Any:
    try:
        return _copy_checked(raw, depth)
    except _NotJson as problem:
        path = "".join(reversed(problem.path)).lstrip(".") or "message"
        raise InvalidMessage(path, str(problem)) from None


def _copy_checked(value: Any, depth: int) -> Any:
    kind: type = value.__class__
    if kind is str:
        return _paired(value)
    if kind in _UNCHANGING or (kind is int and -_LARGEST < value < _LARGEST):
        return value
    if depth == 0:
        raise _NotJson(f"nests deeper than {MAX_DEPTH} levels")
    if kind is dict or isinstance(value, Mapping):
        copied: dict[str, Any] = {}
        mapping: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast costs a call
        for key, item in mapping.items():
            if key.__class__ is not str:
                if not isinstance(key, str):
                    raise _NotJson(f"keys must be strings, got {type(key).__name__}")
                key = str.__str__(key)
            if not key.isascii():
                key = _paired(key)
            if item.__class__ is str:
                copied[key] = item if item.isascii() else _paired(item)
                continue
            if item.__class__ in _UNCHANGING:
                copied[key] = item
                continue
            try:
                copied[key] = _copy_checked(item, depth - 1)
            except _NotJson as problem:
                problem.path.append(f".{key[:80]}")
                raise
        return copied
    if kind is list or isinstance(value, (list, tuple)):
        items: list[Any] = []
        for index, item in enumerate(cast("list[Any]", value)):
            try:
                items.append(_copy_checked(item, depth - 1))
            except _NotJson as problem:
                problem.path.append(f"[{index}]")
                raise
        return items
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise _NotJson("must be a finite number: JSON has no NaN and no infinity")
    if isinstance(value, str):  # e.g. a StrEnum: keep its text, drop its class
        return _paired(str.__str__(value))
    if isinstance(value, int):
        if -_LARGEST < value < _LARGEST:
            return int(value)
        raise _NotJson("must be a number of at most 4,300 digits")
    raise _NotJson(f"must be JSON data, got {type(value).__name__}")


def _paired(text: str) -> str:
    """Return a text with each pair of surrogates as the character it stands for, as every reader of JSON makes it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _check_content(content: object, path: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise InvalidMessage(path, f"must be text, null or a list of blocks, got {_kind(content)}")
    for index, block in enumerate(cast("list[object]", content)):
        where = f"{path}[{index}]"
        if not isinstance(block, dict):
            raise InvalidMessage(where, f"a block must be an object, got {_kind(block)}")
        block = cast("dict[str, Any]", block)
        kind = block.get("type")
        if not isinstance(kind, str):
            raise InvalidMessage(f"{where}.type", "a block needs a type")
        if kind in CALL_BLOCKS and not _is_id(block.get("id")):
            raise InvalidMessage(f"{where}.id", "a tool call needs an id")
        if kind == "tool_result" and not _is_id(block.get("tool_call_id") or block.get("tool_use_id")):
            raise InvalidMessage(f"{where}.tool_call_id", "a tool result needs the id of the call it answers")


def _check_calls(message: Message) -> None:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        raise InvalidMessage("tool_calls", f"must be a list or null, got {_kind(calls)}")
    for index, call in enumerate(cast("list[object]", calls)):
        if not isinstance(call, dict):
            raise InvalidMessage(f"tool_calls[{index}]", f"must be an object, got {_kind(call)}")
        if not _is_id(cast("dict[str, Any]", call).get("id")):
            raise InvalidMessage(f"tool_calls[{index}].id", "a tool call needs an id")


def _name(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _parsed_arguments(text: str) -> object:
    value = _copy_within(orjson.loads(text), _ARGUMENTS_DEPTH)
    return json.loads(text) if _LONG_NUMBER.search(text) else value  # orjson rounds integers past 64 bits


def _is_id(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _kind(value: object) -> str:
    return {"dict": "an object", "list": "a list", "str": "text", "bool": "a boolean"}.get(
        type(value).__name__, "a number"
    )
