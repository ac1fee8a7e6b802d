"""Token counts of messages, before a provider reports them.

A `TokenCounter` is any callable from text to tokens. This module has two: the heuristic, which needs no data, and the
exact one for OpenAI's vocabularies, which works without a network. `count_message_tokens` decides *what* of a message
is counted: what is sent, each call once, media by size. The provider's reports later correct these figures
(economics/meter.py).
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # pyright: ignore[reportUnusedImport] - see `_loading`
import contextlib
import hashlib
import importlib.util
import logging
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, cast

from ..errors import install_command
from ..failures import Report, failure
from ..futures import in_thread, in_thread_if
from .carriers import carried_items, is_carrier
from .media import MEDIA_BLOCKS, media_tokens
from .parsing import CALL_BLOCKS, Message, arguments_text, blocks_of, calls_of, json_text

if TYPE_CHECKING:
    from bpe_openai._bindings import PyTokenizer

TokenCounter = Callable[[str], int]

log = logging.getLogger(__name__)

PER_MESSAGE_OVERHEAD = 4  # tokens; role and delimiters (OpenAI's cookbook: 3 a message, and one for safety)
TOKENS_PER_MEDIA = 600  # tokens of an image of unknown size

_PIECE = 20_000  # characters counted in one call, which holds the GIL for one or two milliseconds (8-20 MB/s)
_CUT_WITHIN = 200  # characters before a piece's end that are searched for white space, where a cut adds no token
_OFF_LOOP = 60_000  # characters; a longer message is counted or rendered in a thread
_ITEM = 8  # characters of a number, or of a key and its separators, about
_SEALED_CHARS_PER_TOKEN = 5.5  # base64 of sealed reasoning: three bytes in four characters, about four bytes a token
_VOCABULARY_SECONDS = 10.0  # seconds; time limit for tiktoken to load its vocabulary from its cache or the network


class HeuristicTokenCounter:
    """``ceil(length / chars_per_token)``, with the length in UTF-8 bytes.

    For plain ASCII that is characters. Chinese, Japanese and Korean characters take three bytes and nearly a token
    each; counted as characters they would be estimated at a quarter of their cost.

    Args:
        chars_per_token: above 0; 4.0 is the usual average for English prose and code.
    """

    exact = False

    def __init__(self, chars_per_token: float = 4.0) -> None:
        if not (math.isfinite(chars_per_token) and chars_per_token > 0):
            raise ValueError(f"chars_per_token must be above 0, got {chars_per_token}")
        self.chars_per_token = chars_per_token

    def __call__(self, text: str) -> int:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return math.ceil(size / self.chars_per_token)

    def __repr__(self) -> str:
        return f"HeuristicTokenCounter(chars_per_token={self.chars_per_token})"


approx_token_counter: TokenCounter = HeuristicTokenCounter()


class VocabularyTokenCounter:
    """Counts with a BPE vocabulary, in pieces, so that any length is accepted and other threads do not wait long.

    `count` takes texts of at most some 20,000 characters; it raises an error of encoding for lone surrogates.
    """

    exact = True

    def __init__(self, count: Callable[[str], int], name: str) -> None:
        self._count_piece = count
        self.name = name

    def __call__(self, text: str) -> int:
        if len(text) <= _PIECE:
            return self._count(text)
        total = 0
        for piece in _pieces(text):
            total += self._count(piece)
            time.sleep(0)  # releases the GIL at once; a waiting event loop would otherwise wait 5 ms for it
        return total

    def _count(self, text: str) -> int:
        try:
            return self._count_piece(text)
        except UnicodeEncodeError:  # surrogates, which UTF-8 cannot hold: pairs become characters, others U+FFFD
            return self._count_piece(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def __repr__(self) -> str:
        return f"VocabularyTokenCounter({self.name!r})"


class GuardedTokenCounter:
    """A counter of a plug-in. Where it fails, or returns no count, it is reported, and the heuristic counts."""

    def __init__(self, counter: Callable[[str], object], report: Report) -> None:
        self.exact = bool(getattr(counter, "exact", False))
        self._counter = counter
        self._report = report

    def __call__(self, text: str) -> int:
        try:
            tokens = self._counter(text)
        except Exception as problem:  # noqa: BLE001 - other people's code: reported
            fault = failure(problem, self._counter)
        else:
            if type(tokens) is int and tokens >= 0:
                return tokens
            fault = f"returned {tokens}" if type(tokens) is int else f"returned a {type(tokens).__name__}"
        self._report(f"token counter {self._counter!r} {fault}; 4 characters a token are assumed")
        return approx_token_counter(text)

    def __repr__(self) -> str:
        return repr(self._counter)


def guarded(counter: TokenCounter, report: Report) -> TokenCounter:
    """Core's counters cannot fail: they are returned as they are."""
    return counter if type(counter) in _CORES else GuardedTokenCounter(counter, report)


_CORES = (HeuristicTokenCounter, VocabularyTokenCounter)
_loaded: dict[str, TokenCounter] = {}
_loading = threading.RLock()

if hasattr(os, "register_at_fork"):
    # A fork waits for a vocabulary that is being loaded: its child lacks the thread, and would wait for it for ever.
    # What the load imports must not register handlers of forks meanwhile: concurrent.futures.thread is imported above.
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def exact_token_counter(encoding: str = "o200k_base") -> TokenCounter:
    """Return the exact counter of an OpenAI vocabulary, or the heuristic, with one warning, if it cannot be loaded.

    ``bpe-openai`` (the extra `amplifier-context-core[exact]`) has its vocabularies in the wheel. Without it, tiktoken
    is used, which downloads the vocabulary at first use, within ten seconds. The first call of a process blocks; later
    calls return the same counter.
    """
    return _load(encoding, downloads=True)


async def load_counter(encoding: str = "o200k_base") -> TokenCounter:
    """Return the counter of this process for a vocabulary. The first call loads it in a thread.

    It downloads nothing: a thread that still downloads when its process ends can crash it. Without a vocabulary on this
    machine it counts with the heuristic; `exact_token_counter` downloads one for all later processes.
    """
    return _loaded.get(encoding) or await in_thread(_load, encoding)


def start_loading(encoding: str) -> None:
    """Load a vocabulary in a daemon thread, if it lies in an installed wheel or in the cache of tiktoken."""
    if encoding not in _loaded and (importlib.util.find_spec("bpe_openai") or _is_cached(encoding)):
        with contextlib.suppress(RuntimeError):  # no thread can be started: the first count loads it
            threading.Thread(target=_load, args=(encoding,), name="vocabulary", daemon=True).start()


def _load(encoding: str, *, downloads: bool = False) -> TokenCounter:
    with _loading:
        counter = _loaded.get(encoding)
        if counter is None:
            counter = _from_wheel(encoding)
            if counter is None and (downloads or _is_cached(encoding)):  # to look there may open a file
                counter = _from_tiktoken(encoding)
            if counter is None:
                log.warning(
                    "no vocabulary %s to be had: token counts are estimates of 4 characters a token; "
                    "%s counts exactly without a network",
                    encoding,
                    install_command("exact"),
                )
            _loaded[encoding] = counter = counter or approx_token_counter
        return counter


def _from_wheel(encoding: str) -> TokenCounter | None:
    try:
        return VocabularyTokenCounter(_tokenizer(encoding).count, encoding)
    except Exception as problem:  # noqa: BLE001 - not installed, or in trouble: there are other ways to count
        log.debug("bpe-openai has no vocabulary %s: %s", encoding, problem)
        return None


def _tokenizer(encoding: str) -> PyTokenizer:
    """Return a tokenizer of the compiled module of bpe-openai, without the package around it.

    The package reads a second copy of all its vocabularies when it is imported: half a second and 65 MB. It does so by
    a deprecated function, which fails where the host makes errors of warnings. Filters of warnings belong to the
    process, so they cannot be changed in a thread. Raises `ImportError` if bpe-openai is not installed.
    """
    name = "bpe_openai._bindings"
    package = importlib.util.find_spec("bpe_openai")
    spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = sys.modules.get(name)
    if module is None:  # else a host has loaded it: it can be initialised once in a process
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.tokenizer_for_encoding(encoding)


def _from_tiktoken(encoding: str) -> TokenCounter | None:
    found: list[Callable[[str], int]] = []

    def load() -> None:
        with contextlib.suppress(Exception):  # no network, no cache or no such encoding: there is no vocabulary
            import tiktoken

            encode = tiktoken.get_encoding(encoding).encode_ordinary
            found.append(lambda text: len(encode(text)))

    # A daemon thread, because a download on a network that drops packets cannot be cancelled.
    thread = threading.Thread(target=load, name="tiktoken-vocabulary", daemon=True)
    thread.start()
    thread.join(_VOCABULARY_SECONDS)
    return VocabularyTokenCounter(found[0], encoding) if found else None


def _is_cached(encoding: str) -> bool:
    """`tiktoken.load.read_file_cached` keeps there what it downloaded."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    url = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    return folder != "" and os.path.exists(os.path.join(folder, hashlib.sha1(url.encode()).hexdigest()))


def _pieces(text: str) -> Iterable[str]:
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            cut = max(text.rfind("\n", end - _CUT_WITHIN, end), text.rfind(" ", end - _CUT_WITHIN, end))
            end = cut if cut > start else end
        yield text[start:end]
        start = end


def count_message_tokens(
    message: Message,
    counter: TokenCounter = approx_token_counter,
    *,
    per_message_overhead: int = PER_MESSAGE_OVERHEAD,
    tokens_per_media: int = TOKENS_PER_MEDIA,
) -> int:
    """Return the tokens of one message in a request: its text, its calls (each once), its media, its framing.

    Args:
        message: a message of any shape in docs/kernel.md.
        per_message_overhead: tokens of framing added once.
        tokens_per_media: tokens of an image, audio or file without a size in its header.
    """
    content = message.get("content")
    total = per_message_overhead
    metadata = message.get("metadata")
    carried = carried_items(message) if metadata and is_carrier(message) else []
    if carried:  # its content is a label that is not sent
        return total + sum(_count_texts(item, counter) for item in carried)
    if isinstance(content, str):
        total += counter(content) if content else 0
    elif content is not None:
        total += _count_blocks(blocks_of(message), counter, tokens_per_media)
    if message.get("tool_calls") or content.__class__ is list:
        for call in calls_of(message):
            total += counter(call.name) if call.name else 0
            arguments = arguments_text(call)
            total += counter(arguments) if arguments else 0
    return total


def count_tokens(
    messages: Iterable[Message],
    counter: TokenCounter = approx_token_counter,
    *,
    per_message_overhead: int = PER_MESSAGE_OVERHEAD,
    tokens_per_media: int = TOKENS_PER_MEDIA,
) -> int:
    return sum(
        count_message_tokens(
            message, counter, per_message_overhead=per_message_overhead, tokens_per_media=tokens_per_media
        )
        for message in messages
    )


async def measure(message: Message, counter: TokenCounter) -> int:
    """Count a large message in a thread, so that the event loop is not blocked."""
    return await in_thread_if(are_large((message,)), count_message_tokens, message, counter)


def are_large(messages: Iterable[Message]) -> bool:
    left = _OFF_LOOP
    for message in messages:
        left -= size_of(message, left)
        if left <= 0:
            return True
    return False


def size_of(value: object, enough: int) -> int:
    """Return the characters of JSON data, about. Stop counting at `enough`."""
    total = 0
    left: list[Any] = [(value,)]
    while left:
        inside = left.pop()
        for item in inside.values() if inside.__class__ is dict else inside:
            kind = item.__class__
            total += len(item) + _ITEM if kind is str else _ITEM
            if total >= enough:
                return total
            if kind is dict or kind is list:
                left.append(item)
    return total


def _count_blocks(blocks: list[dict[str, Any]], counter: TokenCounter, tokens_per_media: int) -> int:
    total = 0
    for block in blocks:
        kind = block.get("type")
        if kind in MEDIA_BLOCKS:
            total += media_tokens(block, tokens_per_media)
        elif kind in CALL_BLOCKS:
            continue  # counted as calls, once
        elif kind == "tool_result":
            nested = block.get("output", block.get("content"))
            if isinstance(nested, list) and all(isinstance(item, dict) for item in cast("list[object]", nested)):
                total += _count_blocks(cast("list[dict[str, Any]]", nested), counter, tokens_per_media)
            elif nested:
                total += counter(nested if isinstance(nested, str) else json_text(cast(object, nested)))
        else:
            total += _count_texts(block, counter)
    return total


def _count_texts(block: dict[str, Any], counter: TokenCounter) -> int:
    """Count all values of a text, thinking, reasoning or unknown block, and its sealed parts by their size."""
    total = 0
    for key, value in block.items():
        if key in ("type", "visibility", "cache_control"):
            continue
        if key in ("signature", "data", "encrypted_content") and isinstance(value, str):
            total += math.ceil(len(value) / _SEALED_CHARS_PER_TOKEN)
        elif isinstance(value, str):
            total += counter(value) if value else 0
        elif block.get("type") == "thinking" and key == "content" and isinstance(value, list):
            # OpenAI's sealed reasoning: [encrypted_content, reasoning id]
            total += sum(
                math.ceil(len(item) / _SEALED_CHARS_PER_TOKEN)
                for item in cast("list[object]", value)
                if isinstance(item, str)
            )
        elif value not in (None, [], {}):
            total += counter(json_text(value))
    return total
