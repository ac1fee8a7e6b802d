"""Reading the kernel's message dicts without loss.

A message is any JSON object that hosts, loops and providers were observed to store (docs/kernel.md lists the shapes).
`parse_message` reads it once. It returns an isolated copy and a `MessageInfo` with what the rest of the core needs
(role, calls made, calls answered, whether a human wrote it). The history keeps the message as given; the view
normalizes shapes that providers refuse. One change is made: a surrogate pair becomes the character that it encodes,
because every store does the same. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, cast

import orjson

from ..errors import InvalidMessage
from .reminders import is_injected, is_of_a_program

Message = dict[str, Any]

ROLES = frozenset({"system", "developer", "user", "assistant", "function", "tool"})
SYSTEM_ROLES = frozenset({"system", "developer"})
CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
# What a view shows in place of a result that is not there.
NO_RESULT = "[no result: the call was not answered]"
INTERRUPTED = "[interrupted: the call was stopped before it returned a result]"
THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning"})
SEALED_KEYS = frozenset({"thinking_block", "thinking_blocks", "reasoning_details"})  # docs/caching.md: copies of it
WIRE_CONTENT = "wire_content"  # docs/caching.md: in `metadata.anthropic`, what the provider sends in place of content
LOADED_TOOLS = "openai:tool_search_items"  # docs/kernel.md: without it the model loses tools
MAX_DEPTH = 100  # levels of nesting; deeper input is an attack on recursion
_ARGUMENTS_DEPTH = MAX_DEPTH - 8  # levels that arguments given as text may add; calls are a few levels deep

_LONG_NUMBER = re.compile(r"\d{19}")  # digits; integers of fewer fit into 64 bits
_LARGEST = 10**4_300  # Python does not write longer integers as text (sys.set_int_max_str_digits)
_UNCHANGING = frozenset({bool, type(None)})  # types of JSON data that need no copy and no check


class Call(NamedTuple):
    """One tool call as its message states it. `name` is empty if the message states none.

    `arguments` is any JSON value, as given. `arguments_of` interprets it. `signature` is the seal of Gemini's thinking
    before the call (docs/caching.md), as a block states it; None if it states none.
    """

    id: str
    name: str
    arguments: Any
    signature: str | None = None


class Result(NamedTuple):
    """One tool result: the call that it answers and its content (text, blocks or any JSON), as given."""

    call_id: str
    content: Any
    name: str | None = None


class MessageInfo(NamedTuple):
    role: str  # one of ROLES
    call_ids: tuple[str, ...]  # of the tool calls it makes, in order
    answered_ids: tuple[str, ...]  # of the tool calls that it answers, in order
    human: bool  # a human wrote it (docs/kernel.md: not every ``role: user`` message is a human's)


ParsedMessage = tuple[Message, MessageInfo]


def parse_message(raw: object) -> ParsedMessage:
    """Check and copy a message, so that later changes by the caller do not reach the history.

    Raises:
        InvalidMessage: the message is no object, has no or an unknown role, content that is neither text, null nor
            blocks, a call or result without an id, or a value that JSON cannot hold. The field is named.
    """
    if raw.__class__ is not dict and not isinstance(raw, Mapping):
        raise InvalidMessage("message", f"must be an object, got {type(raw).__name__}")
    message: Message = copy_checked(cast(object, raw))
    return message, info_of(message)


def info_of(message: Message) -> MessageInfo:
    """Check a message of plain JSON data, without a copy. Raises `InvalidMessage`, as `parse_message` does."""
    role = message.get("role")
    if role is None:
        raise InvalidMessage("role", "is missing")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidMessage("role", f"must be one of {', '.join(sorted(ROLES))}")
    metadata = message.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidMessage("metadata", f"must be an object or null, got {_kind(metadata)}")
    called, answered = _ids_in_blocks(message.get("content"))
    listed = _ids_in_list(message.get("tool_calls"))
    if called and listed:  # an id in a content block and in the list is one call; an id twice in one list is two calls
        known = set(listed)
        called = [call_id for call_id in called if call_id not in known]
    if role == "tool":
        if _is_id(own := message.get("tool_call_id")):
            answered = [own]
        elif not answered:
            raise InvalidMessage("tool_call_id", "a tool result needs the id of the call it answers")
    return MessageInfo(role, (*listed, *called), (*answered,), is_human(message))


def calls_of(message: Message) -> Iterator[Call]:
    """Yield the tool calls of a message, in any shape. A call stated in a block and in the list is yielded once."""
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
    """Read an item of `tool_calls`, in OpenAI's shape (`function`) or the kernel's (`tool`)."""
    function = item.get("function")
    source = cast("dict[str, Any]", function) if isinstance(function, dict) else item
    name = source.get("name") or item.get("tool") or item.get("name")
    return Call(item["id"], _name(name), source.get("arguments", item.get("input")))


def block_call(block: Mapping[str, Any]) -> Call:
    name, signature = _name(block.get("name") or block.get("tool")), block.get("signature")
    given = block.get("input", block.get("arguments"))
    return Call(block["id"], name, given, signature if _is_id(signature) else None)


def arguments_of(call: Call) -> dict[str, Any]:
    """Return the arguments of a call as an object, the same wherever they are shown.

    An object, or the text of one, is returned as it is. Another value is put under ``value``. Text that is no JSON
    (truncated, malformed, nested too deep) is put under ``unparsed_arguments``. Null or empty text is no arguments.
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
    """True if arguments are the JSON text of an object, as in OpenAI's shape."""
    try:
        return isinstance(arguments, str) and isinstance(_parsed_arguments(arguments), dict)
    except ValueError:
        return False


def arguments_text(call: Call) -> str:
    """Return the text as given, or the JSON of their object."""
    return call.arguments if isinstance(call.arguments, str) else json_text(arguments_of(call))


def results_of(message: Message) -> Iterator[Result]:
    """Read ``role: tool``, or ``tool_result`` blocks (Anthropic's and the kernel's)."""
    if message["role"] == "tool" and _is_id(message.get("tool_call_id")):
        name = message.get("name")
        yield Result(message["tool_call_id"], message.get("content"), name if isinstance(name, str) else None)
        return
    for block in blocks_of(message):
        if block.get("type") == "tool_result":
            yield Result(block_answers(block), block.get("output", block.get("content")))


def block_answers(block: Mapping[str, Any]) -> str:
    """Read the kernel's `tool_call_id` or Anthropic's `tool_use_id`."""
    return cast(str, block.get("tool_call_id") or block.get("tool_use_id") or "")


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """Empty if the content is text or null."""
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def metadata_of(message: Message) -> dict[str, Any]:
    """Do not mutate it. It is empty if the message has none."""
    metadata = message.get("metadata")
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}


def with_metadata(message: Message, metadata: dict[str, Any]) -> Message:
    """Return a copy; without the field where it would be empty."""
    rest = {key: value for key, value in message.items() if key != "metadata"}
    return {**rest, "metadata": metadata} if metadata else rest


def text_of(content: object) -> str:
    """Return the text of a content: a string, or its text blocks, those of nested results too, joined by newlines.

    Thinking is left out, because it is state of the model and not part of the conversation.
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
    """The data is checked. Integers beyond 64 bits are supported."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (orjson.JSONEncodeError, UnicodeError):
        return json.dumps(value)


def result_text(content: object) -> str:
    return json_text(cast(object, content)) if isinstance(content, dict) else text_of(content)


def is_human(message: Message) -> bool:
    """True if a human wrote it: not a hook's, a service's or ephemeral, not only a program's text, results or calls."""
    if message["role"] != "user" or is_injected(metadata_of(message)):
        return False
    content = message.get("content")
    results = 0
    if isinstance(content, list):
        blocks = [block for block in blocks_of(message) if block.get("type") != "tool_result"]
        if any(block.get("type") != "text" for block in blocks):
            return True
        results = len(cast("list[object]", content)) - len(blocks)
        content = "\n".join(str(block.get("text", "")) for block in blocks)
    if not isinstance(content, str) or not content.strip():
        return not results and not message.get("tool_calls")
    return not is_of_a_program(content)


def is_signed(message: Message) -> bool:
    """True if it has thinking that a provider signed or sealed, which is kept byte for byte or not at all."""
    if any(_is_sealed(block) for block in blocks_of(message)):
        return True
    if not SEALED_KEYS.isdisjoint(message):
        return any(message.get(key) for key in SEALED_KEYS)
    own = metadata_of(message).get("anthropic")
    wire = cast("dict[str, Any]", own).get(WIRE_CONTENT) if isinstance(own, dict) else None
    return isinstance(wire, list) and any(_is_sealed(block) for block in cast("list[object]", wire))


def _is_sealed(block: object) -> bool:
    if not isinstance(block, dict):
        return False
    block = cast("dict[str, Any]", block)
    kind = block.get("type")
    if kind == "redacted_thinking" or kind == "reasoning":
        return True
    return kind == "thinking" and bool(block.get("signature") or block.get("content"))


def copy_message(message: Message) -> Message:
    """Strings are shared."""
    return copy_json(message)


def copy_json(value: Any) -> Any:
    """The data was checked before."""
    kind: type = value.__class__
    if kind is dict:
        return {key: item if item.__class__ is str or item is None else copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    return value


class _NotJson(Exception):
    """Collects the path of a value that is not JSON while it propagates."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


def copy_checked(raw: object) -> Any:
    """Return a deep copy of `raw` as plain JSON data. Raises `InvalidMessage`: a value is not JSON (bytes, sets,
    objects, NaN, keys that are no strings) or nests deeper than MAX_DEPTH levels.
    """
    return _copy_within(raw, MAX_DEPTH)


def is_plain(parsed: Any, depth: int = MAX_DEPTH) -> bool:
    """True if a dict or list that orjson parsed is as `copy_checked` would return it. It may not be if it nests deeper
    than `depth` levels, or holds a float, which may have been an integer beyond 64 bits.
    """
    values: Any = parsed.values() if parsed.__class__ is dict else parsed
    for one in values:
        kind = one.__class__
        if kind is str:
            continue
        if kind is float or ((kind is dict or kind is list) and (depth == 1 or not is_plain(one, depth - 1))):
            return False
    return True


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
    """Put the character that it encodes in the place of each surrogate pair, as every JSON parser decodes it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _ids_in_blocks(content: object) -> tuple[Sequence[str], Sequence[str]]:
    """Check content. Return the ids of the calls that its blocks make, and of those that they answer."""
    if content is None or isinstance(content, str):
        return (), ()
    if not isinstance(content, list):
        raise InvalidMessage("content", f"must be text, null or a list of blocks, got {_kind(content)}")
    called: list[str] = []
    answered: list[str] = []
    for index, block in enumerate(cast("list[object]", content)):
        if not isinstance(block, dict):
            raise InvalidMessage(f"content[{index}]", f"a block must be an object, got {_kind(block)}")
        block = cast("dict[str, Any]", block)
        kind = block.get("type")
        if not isinstance(kind, str):
            raise InvalidMessage(f"content[{index}].type", "a block needs a type")
        if kind in CALL_BLOCKS:
            if not _is_id(own := block.get("id")):
                raise InvalidMessage(f"content[{index}].id", "a tool call needs an id")
            called.append(own)
        elif kind == "tool_result":
            if not _is_id(own := block_answers(block)):
                raise InvalidMessage(
                    f"content[{index}].tool_call_id", "a tool result needs the id of the call it answers"
                )
            answered.append(own)
    return called, answered


def _ids_in_list(calls: object) -> Sequence[str]:
    """Check `tool_calls`. Return the ids of the calls."""
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise InvalidMessage("tool_calls", f"must be a list or null, got {_kind(calls)}")
    ids: list[str] = []
    for index, call in enumerate(cast("list[object]", calls)):
        if not isinstance(call, dict):
            raise InvalidMessage(f"tool_calls[{index}]", f"must be an object, got {_kind(call)}")
        if not _is_id(own := cast("dict[str, Any]", call).get("id")):
            raise InvalidMessage(f"tool_calls[{index}].id", "a tool call needs an id")
        ids.append(own)
    return ids


def _name(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _parsed_arguments(text: str) -> object:
    value = _copy_within(orjson.loads(text), _ARGUMENTS_DEPTH)
    # orjson reads integers past 64 bits as floats. The text is searched last: for megabytes of it that takes a while.
    return json.loads(text) if _holds_float(value) and _LONG_NUMBER.search(text) else value


def _holds_float(value: object) -> bool:
    left = [value]
    while left:
        one: Any = left.pop()
        if one.__class__ is float:
            return True
        if one.__class__ is dict or one.__class__ is list:
            left.extend(one.values() if one.__class__ is dict else one)
    return False


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.strip() != ""


def _kind(value: object) -> str:
    return {"dict": "an object", "list": "a list", "str": "text", "bool": "a boolean", "NoneType": "null"}.get(
        type(value).__name__, "a number"
    )
