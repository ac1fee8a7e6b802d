"""A checker of requests: would a provider accept it? Every view in the test suite is checked by it.

`check_request` checks a list of messages against the kernel's own `Message` model and against the rules of OpenAI and
Anthropic that are documented, or known from their error texts, and do not depend on the model. It imports nothing from
the core: a judge does not ask the accused. Each rule is one small generator below, with its source.

Sources, as named in the rules:

* *kernel*: `amplifier_core.message_models.Message`, which every orchestrator builds from every message.
* *Anthropic*: the Messages API reference, its guides "Tool use" and "Extended thinking", or an error 400's own words.
* *OpenAI*: the Chat Completions and Responses references, or an error 400's own words.
* *Amplifier*: what hosts and provider modules of that kernel do with rows of their own.

Left out on purpose, because it depends on the model, the settings or the provider module:

* Mistral's rule for call ids: exactly nine letters or digits, which ids of other providers cannot meet;
* strict alternation of roles: Anthropic joins consecutive turns;
* prefilled assistant turns at the end, and their trailing white space;
* whether text may follow a `tool_use` block: older error reports say no, measurements of 2026 say yes;
* image formats and sizes.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

from .message_shapes import (
    SYSTEM_ROLES,
    THINKING_BLOCKS,
    Call,
    as_list,
    as_mapping,
    block_calls,
    blocks_of,
    calls_of,
    listed_calls,
    results_of,
)

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")

MessageRule = Callable[[Mapping[str, Any]], Iterator[str]]


def check_request(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the broken rules, each as a sentence that names a message by its index; empty for a valid request.

    Args:
        messages: what would be sent, system prompt included, in order. Not changed.
    """
    broken = [(0, sentence) for sentence in _opening(messages)]
    for index, message in enumerate(messages):
        kind = as_mapping(message)
        if kind is None:
            broken.append((index, f"message {index} is {type(message).__name__}, not a dict"))
            continue
        label = f"message {index} ({kind.get('role')})"
        broken.extend((index, f"{label} {sentence}") for sentence in _broken_by(kind))
    broken.extend(_pairing(messages))
    return [sentence for _, sentence in sorted(broken, key=lambda item: item[0])]


def checked(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return valid messages unchanged; raise `AssertionError` with all violations otherwise."""
    broken = check_request(messages)
    if broken:
        raise AssertionError(f"{len(broken)} provider rules broken:\n  " + "\n  ".join(broken))
    return messages


_known: dict[bytes, tuple[str, ...]] = {}  # by the hash of a message
_MOST_KNOWN = 50_000  # messages


def _broken_by(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the rules for one message say of it. A session sends most messages many times: each is judged once.

    The hash covers types as well as values. A message that holds anything but plain JSON types is judged each time.
    """
    try:
        key = hashlib.blake2b(marshal.dumps(cast(Any, message), 2), digest_size=16).digest()
    except ValueError:
        return tuple(sentence for rule in RULES for sentence in rule(message))
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = tuple(sentence for rule in RULES for sentence in rule(message))
    return found


# --- the request as a whole -------------------------------------------------------------------------------------------


def _opening(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """There is a conversation, and the user opens it.

    Anthropic: "at least one message is required"; 'first message must use the "user" role'. System and developer
    messages do not count: providers lift them out of the list.
    """
    if not messages:
        yield "the request is empty"
        return
    for index, message in enumerate(messages):
        role = (as_mapping(message) or {}).get("role")
        if role not in SYSTEM_ROLES:
            if role != "user":
                yield f"message {index} ({role}) comes first after the system prompt; the first must be the user's"
            return
    yield "the request holds system messages only; there must be a user message"


# --- one message ------------------------------------------------------------------------------------------------------


def _role(message: Mapping[str, Any]) -> Iterator[str]:
    """Roles that providers take. The kernel knows `function` too, which OpenAI alone had and has deprecated (OpenAI,
    Chat Completions: "role: unknown variant `function`, expected one of ..." is what others answer)."""
    role = message.get("role")
    if role not in ROLES:
        yield f"has the role {role!r}, which providers do not take"


def _kernel_model(message: Mapping[str, Any]) -> Iterator[str]:
    """The kernel's own model accepts the message (kernel); skipped if the kernel is not installed."""
    problem = _kernel_refusal(message)
    if problem is not None:
        yield f"is refused by the kernel: {problem}"


def _serialisable(message: Mapping[str, Any]) -> Iterator[str]:
    """Requests are JSON in UTF-8 (RFC 8259, sections 6 and 8.1): no NaN, no objects, no lone surrogates."""
    try:
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as problem:
        yield f"holds a lone surrogate (U+{ord(problem.object[problem.start]):04X}), which UTF-8 cannot encode"
    except (TypeError, ValueError, RecursionError) as problem:
        yield f"is not JSON: {problem}"


def _content(message: Mapping[str, Any]) -> Iterator[str]:
    """There is content, and it is not empty.

    Anthropic: "all messages must have non-empty content"; OpenAI: "empty array. Expected an array with minimum length
    1". Two empty strings are usual and taken by both: an assistant's beside its tool calls, and a tool's result.
    """
    content = message.get("content")
    role = message.get("role")
    if content is None:
        yield "has no content (null or absent)"
    elif isinstance(content, str):
        if role == "tool":
            return
        calls = role == "assistant" and bool(listed_calls(message))
        if content == "" and not calls:
            yield "has empty content"
        elif content and not content.strip():
            yield "has content of white space only"
    elif (items := as_list(content)) is None:
        yield f"has content of type {type(content).__name__}; it must be text or a list of blocks"
    elif not items:
        yield "has an empty list as content"
    else:
        for place, item in enumerate(items):
            if as_mapping(item) is None:
                yield f"has a content block {place} of type {type(item).__name__}; blocks are objects"


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """No empty text block, anywhere (Anthropic: "text content blocks must be non-empty", "must contain non-whitespace
    text"; for blocks inside tool results as well)."""
    for where, block in _deep_blocks(message.get("content")):
        if block.get("type") == "text":
            text = block.get("text")
            if not isinstance(text, str):
                yield f"has a text block without text ({where})"
            elif not text.strip():
                yield f"has an empty text block ({where})"


def _images(message: Mapping[str, Any]) -> Iterator[str]:
    """Images have a source and are in permitted places.

    Anthropic, "Vision": a source is base64 data with its media type, a URL or a file. Roles: Anthropic, "`image` blocks
    are not permitted within assistant turns" (system prompts are text); OpenAI, "Image URLs are only allowed for
    messages with role 'user'"; a tool's image is taken by Anthropic and the Responses API.
    """
    for where, block in _deep_blocks(message.get("content")):
        kind = block.get("type")
        if kind not in ("image", "image_url"):
            continue
        if message.get("role") not in ("user", "tool"):
            yield f"shows an image ({where}); only users and tools may"
        if not _has_source(block):
            yield f"has an image without a source ({where})"


def _thinking(message: Mapping[str, Any]) -> Iterator[str]:
    """Thinking belongs to the assistant, opens its message and does not close it.

    Anthropic, "Extended thinking": "a final `assistant` message must start with a thinking block" (when thinking is on,
    which a signature shows); "The final block in an assistant message cannot be `thinking`" (calls in `tool_calls` come
    after the content). Thinking may occur between calls (interleaved thinking), so only the start is checked.
    """
    blocks = blocks_of(message.get("content"))
    thoughts = [(place, block) for place, block in blocks if block.get("type") in THINKING_BLOCKS]
    if not thoughts:
        return
    if message.get("role") != "assistant":
        yield f"has a thinking block ({thoughts[0][0]}); only the assistant thinks"
        return
    signed = [place for place, block in thoughts if block.get("signature") or block.get("type") == "redacted_thinking"]
    if signed and blocks[0][1].get("type") not in THINKING_BLOCKS:
        yield f"has signed thinking (block {signed[0]}) but does not start with thinking"
    if blocks[-1][1].get("type") in THINKING_BLOCKS and not listed_calls(message):
        yield "ends with thinking; text or a call must follow"


def _calls(message: Mapping[str, Any]) -> Iterator[str]:
    """Calls are the assistant's, named, with an id of their own and an object of arguments.

    OpenAI, Chat Completions: `tool_calls` exists on assistant messages only, "empty array. Expected an array with
    minimum length 1", "Missing required parameter: messages[].tool_calls[].type". Anthropic: "`tool_use` ids must be
    unique", "tool_use.input: Input should be a valid dictionary". kernel: `ToolCall.arguments` is a dict.
    """
    entries = message.get("tool_calls")
    if entries is not None and not as_list(entries):
        yield "has tool_calls that are not a list of calls (null, absent or at least one)"
    listed, written = listed_calls(message), block_calls(message)
    if (listed or written) and message.get("role") != "assistant":
        yield f"makes {len(calls_of(message))} tool calls; only the assistant may"
    if len(listed) != len(as_list(entries) or []):
        yield "has a tool call that is not an object"
    for item in as_list(entries) or []:
        entry = as_mapping(item) or {}
        if "function" in entry and entry.get("type") != "function":
            yield f"has a tool call {entry.get('id')!r} of type {entry.get('type')!r}; it must be 'function'"
    for group in (listed, written):
        seen: set[str] = set()
        for call in group:
            yield from _one_call(call)
            if isinstance(call.id, str) and call.id:
                if call.id in seen:
                    yield f"makes two calls of the id {call.id!r}"
                seen.add(call.id)


def _one_call(call: Call) -> Iterator[str]:
    if not _filled(call.id):
        yield f"has a call to {call.name!r} without an id"
    if not _filled(call.name):
        yield f"has a call {call.id!r} without a name"
    if call.shape == "openai" and not isinstance(call.arguments, str):
        yield f"has a call {call.id!r} whose arguments are {type(call.arguments).__name__}, not JSON text"
    elif call.shape != "openai" and as_mapping(call.arguments) is None:
        yield f"has a call {call.id!r} whose arguments are {type(call.arguments).__name__}, not an object"
    elif call.input() is None:
        yield f"has a call {call.id!r} whose arguments are not a JSON object"


def _ids_and_names(message: Mapping[str, Any]) -> Iterator[str]:
    """Call ids, tool names and the `name` of a message have characters and lengths that every provider takes.

    Ids: Anthropic, "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; Bedrock, ToolUseBlock: at most 64;
    OpenAI, "messages[].tool_calls[].id: string too long. Expected a string with maximum length 40", "input[].call_id:
    ... maximum length 64". Tool names: OpenAI, FunctionObject, "a-z, A-Z, 0-9, or contain underscores and dashes, with
    a maximum length of 64"; Bedrock and Mistral the same, Anthropic at least that; Gemini, "Must start with a letter or
    an underscore". Names of messages: OpenAI, "messages[].name: ... pattern '^[a-zA-Z0-9_-]+$'", at most 64.
    """
    calls = [*listed_calls(message), *block_calls(message)]
    for call_id in [call.id for call in calls] + [result.id for result in results_of(message)]:
        if _filled(call_id) and not (len(call_id) <= 40 and _PLAIN.fullmatch(call_id)):
            yield f"has the call id {call_id[:80]!r}, which not every provider takes"
    for call in calls:
        if _filled(call.name) and not _is_tool_name(call.name):
            yield f"calls a tool by the name {call.name[:80]!r}, which not every provider takes"
    name = message.get("name")
    tool = message.get("role") == "tool"
    if isinstance(name, str) and not (_is_tool_name(name) if tool else _is_plain_name(name)):
        yield f"has the name {name[:80]!r}, which not every provider takes"


def _is_plain_name(name: str) -> bool:
    return len(name) <= 64 and _PLAIN.fullmatch(name) is not None


def _is_tool_name(name: str) -> bool:
    return _is_plain_name(name) and not (name[0].isdigit() or name[0] == "-")


def _results(message: Mapping[str, Any]) -> Iterator[str]:
    """Results name the call they answer, are in a message of the user or a tool, and come before other content.

    OpenAI: `tool_call_id` is required on tool messages. Anthropic, "Tool use": tool_result blocks are content of user
    messages and "must come first in the content array. Any text must come after all tool results".
    """
    role = message.get("role")
    for result in results_of(message):
        if not _filled(result.id):
            yield "has a tool result without the id of its call"
        if result.block is not None and result.content is None and role != "tool":
            yield f"has a tool result for {result.id!r} without content"
        if result.block is not None and role not in ("user", "tool"):
            yield f"has a tool_result block ({result.block}); only users and tools may"
    if role == "user":
        last: str | None = None
        for _, block in blocks_of(message.get("content")):
            kind = str(block.get("type"))
            if kind == "tool_result" and last not in (None, "tool_result"):
                yield f"has a tool_result block after {last}; results come first"
                return
            last = kind


def _left_out(message: Mapping[str, Any]) -> Iterator[str]:
    """Rows that hosts keep for themselves are not sent: instruction records that are retired, which a provider module
    refuses, and rows marked as reference only (Amplifier)."""
    metadata = as_mapping(message.get("metadata")) or {}
    record = as_mapping(metadata.get("amplifier:instruction")) or {}
    if record.get("disposition") in ("retired", "anchor_pruned"):
        yield f"is an instruction record that was {record['disposition']}"
    if metadata.get("amplifier_public_reference_only"):
        yield "is marked as reference only"


RULES: tuple[MessageRule, ...] = (
    _role,
    _serialisable,
    _content,
    _texts,
    _images,
    _thinking,
    _calls,
    _ids_and_names,
    _results,
    _left_out,
    _kernel_model,
)


# --- calls and results over the messages ------------------------------------------------------------------------------


def _pairing(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Each call is answered once, directly after it; each result answers such a call; no id is used again.

    OpenAI: "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'"; "messages with role 'tool' must be a response to a preceding message with 'tool_calls'". Anthropic:
    "`tool_use` ids were found without `tool_result` blocks immediately after"; "unexpected `tool_use_id` found in
    `tool_result` blocks"; "each `tool_use` must have a single result"; "`tool_use` ids must be unique", over the whole
    request. Results may be spread over consecutive messages: providers join them if no other
    message is between them.
    """
    made_at: dict[str, int] = {}
    asking = -1  # index of the message whose calls may be answered now
    waiting: dict[str, bool] = {}  # its call ids, and whether each is answered

    def unanswered() -> Iterator[tuple[int, str]]:
        for call_id, answered in waiting.items():
            if not answered:
                yield asking, f"message {asking} (assistant) makes the call {call_id!r}, not answered directly after it"

    for index, item in enumerate(messages):
        message = as_mapping(item) or {}
        label = f"message {index} ({message.get('role')})"
        results = results_of(message)
        for result in results:
            if not _filled(result.id):
                continue
            if result.id not in waiting:
                made = made_at.get(result.id)
                closed = f"a call of message {made} that is not open any more"
                yield (
                    index,
                    f"{label} answers {result.id!r}, {'a call that was never made' if made is None else closed}",
                )
            elif waiting[result.id]:
                yield index, f"{label} answers the call {result.id!r} a second time"
            else:
                waiting[result.id] = True
        if results and len(blocks_of(message.get("content"))) <= _result_blocks(message):
            continue  # nothing but results: the next message may bring more
        yield from unanswered()
        waiting, asking = {}, index
        for call in calls_of(message):
            if not _filled(call.id):
                continue
            if call.id in made_at and made_at[call.id] != index:
                yield index, f"{label} uses the call id {call.id!r} of message {made_at[call.id]} again"
            made_at[call.id] = index
            if message.get("role") == "assistant":
                waiting[call.id] = False
    yield from unanswered()


def _result_blocks(message: Mapping[str, Any]) -> int:
    blocks = blocks_of(message.get("content"))
    if message.get("role") == "tool":
        return len(blocks)
    return sum(1 for _, block in blocks if block.get("type") == "tool_result")


# --- helpers ----------------------------------------------------------------------------------------------------------


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _deep_blocks(content: object, path: str = "block ") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all blocks of a content with their positions; a block inside a tool result is `block 2.0`."""
    for place, block in blocks_of(content):
        yield f"{path}{place}", block
        if block.get("type") == "tool_result":
            yield from _deep_blocks(block.get("output", block.get("content")), f"{path}{place}.")


def _has_source(block: Mapping[str, Any]) -> bool:
    if block.get("type") == "image_url":
        url = as_mapping(block.get("image_url"))
        return _filled(url.get("url") if url is not None else block.get("image_url"))
    source = as_mapping(block.get("source")) or {}
    needed = {"base64": ("data", "media_type"), "url": ("url",)}.get(str(source.get("type")), ())
    return bool(source) and all(_filled(source.get(key)) for key in needed)  # others: a file id, a provider's own shape


@cache
def _kernel_message() -> Any:
    try:
        from amplifier_core.message_models import Message
    except ImportError:
        return None
    return Message


def _kernel_refusal(message: Mapping[str, Any]) -> str | None:
    model = _kernel_message()
    if model is None:
        return None
    try:
        model(**message)
    except (TypeError, ValueError) as problem:  # pydantic's ValidationError is a ValueError
        errors: Any = getattr(problem, "errors", None)
        if errors is None:
            return str(problem)
        # Content is a union: the deepest error is the one about the form that was used.
        found: dict[str, Any] = max(errors(include_url=False), key=lambda error: len(error["loc"]))
        where = [str(part) for part in found["loc"] if "[" not in str(part)]  # without the union's branches
        return f"{'.'.join(where)}: {found['msg']}"
    return None
