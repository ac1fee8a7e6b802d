"""Tokens: what of a message is counted, and by which counter; media by the size in their header."""

import asyncio
import base64
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiktoken.load

from amplifier_context_core import ConfigError, ContextManager, HeuristicTokenCounter, exact_token_counter, load_config
from amplifier_context_core.messages import tokens
from amplifier_context_core.messages.media import media_tokens
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens, load_counter, measure
from amplifier_context_testing import WordCounter
from amplifier_context_testing.checks.conversation_builder import image_block, image_url, png
from tests.messages import Message, block, result, says, user

O = 4  # noqa: E741 - overhead, in every sum below


def test_the_exact_counter_knows_openais_vocabularies() -> None:
    assert exact_token_counter()("hello world") == 2
    assert exact_token_counter("cl100k_base")("tiktoken is great!") == 6
    assert exact_token_counter()("<|endoftext|>") > 1, "what looks like a special token is text"
    with pytest.raises(ConfigError, match="'foo' is not known; known are cl100k_base, heuristic, o200k_base"):
        ContextManager(load_config({"token_counter": "foo"}))


def test_lone_surrogates_can_be_counted_and_impossible_characters_per_token_are_refused() -> None:
    assert approx_token_counter("\ud83d" * 4) == 3
    counter = exact_token_counter()
    assert counter("\ud83d") == counter("\ufffd")
    assert counter("a \ud83d\ude00") == counter("a \U0001f600")
    for bad in (0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="chars_per_token"):
            HeuristicTokenCounter(bad)


MEANWHILE = """
import sys, warnings
def import_begins(event, arguments):
    if event == "import" and str(arguments[0]).startswith("bpe_openai"):
        warnings.simplefilter("error")
from amplifier_context_core.messages.tokens import exact_token_counter
sys.addaudithook(import_begins)
print(exact_token_counter().exact, warnings.filters[0][0])
"""


def test_a_host_that_makes_errors_of_warnings_meanwhile_gets_exact_counts_and_keeps_its_filters() -> None:
    """Another thread may do so at any moment of the load: here at each import that the load makes."""
    done = subprocess.run([sys.executable, "-c", MEANWHILE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "error"]


def without_vocabulary(monkeypatch: pytest.MonkeyPatch, get_encoding: Any) -> None:
    """Of tiktoken nothing was loaded, and bpe-openai is not installed."""
    monkeypatch.setattr(tokens, "_loaded", {})
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=get_encoding))


def test_a_vocabulary_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    without_vocabulary(monkeypatch, lambda name: released.wait())
    monkeypatch.setattr(tokens, "_VOCABULARY_SECONDS", 0.01)
    try:
        assert exact_token_counter() is approx_token_counter
    finally:
        released.set()


async def test_a_session_downloads_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A thread that still downloads when its process ends can crash it."""
    asked: list[str] = []
    without_vocabulary(monkeypatch, asked.append)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert {*await asyncio.gather(*(load_counter() for _ in range(5)))} == {approx_token_counter}
    assert asked == []
    (warning,) = caplog.records
    assert "pip install" in warning.getMessage()


async def test_a_session_uses_what_tiktoken_has_in_its_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.load, "read_file", lambda path: b"")
    tiktoken.load.read_file_cached("https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken")
    without_vocabulary(monkeypatch, lambda name: SimpleNamespace(encode_ordinary=list))
    assert (await load_counter("cl100k_base")) is approx_token_counter
    assert (await load_counter("o200k_base"))("abc") == 3


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user"}, 0),
        (user([block("one two"), block("three")]), 3),
        (result("a", None), 0),
        (user([{"type": "tool_result", "tool_call_id": "a", "output": [block("one"), block("two")]}]), 2),
        (user([{"type": "tool_result", "tool_call_id": "a", "output": {"a": 1}}]), 1),
        (user([{"type": "tool_result", "tool_call_id": "a", "output": None}]), 0),
        (says([{"type": "thinking", "thinking": "one two three"}, block("four")]), 4),
        (says([{"type": "tool_use", "id": "a", "name": "find", "input": {}}, block("one two")]), 4),
        (says([{"type": "text", "text": "one", "cache_control": {"a b": "c d"}, "visibility": "x y"}]), 1),
        (user([{"type": "citation", "note": "one two", "lines": [1, 2], "none": None, "empty": []}]), 3),
    ],
    ids=str,
)
def test_the_words_of_a_message_are_counted_and_its_framing_once(message: Message, words: int) -> None:
    assert count_message_tokens(message, WordCounter()) == O + words


SEALED = "A" * 5_500
INNER = {"type": "tool_result", "tool_use_id": "a", "content": [image_block(640, 480)]}


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "thinking", "thinking": "", "signature": SEALED}, 1_000),
        ({"type": "redacted_thinking", "data": SEALED}, 1_000),
        ({"type": "thinking", "thinking": "", "content": [SEALED, None]}, 1_000),
        ({"type": "input_audio", "input_audio": {"data": SEALED, "format": "wav"}}, 70),
        *((one, 410) for one in (image_block(640, 480), image_url(640, 480), INNER)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_sealed_reasoning_counts_by_its_length_and_media_by_their_size_or_flat(block: Any, tokens: int) -> None:
    counter = WordCounter()
    assert count_message_tokens(says([block]), counter, tokens_per_media=70) == O + tokens
    assert counter.characters == 0, "none of it is text"


async def test_a_large_message_is_counted_in_a_thread_and_a_small_one_here() -> None:
    where: list[int] = []

    def counter(text: str) -> int:
        where.append(threading.get_ident())
        return len(text)

    assert await measure(user("small"), counter) == O + 5
    assert await measure(user("x" * 200_000), counter) == O + 200_000
    assert await measure(user([block("x" * 30_000)] * 10), counter) == O + 300_000
    assert where[0] == threading.get_ident()
    assert threading.get_ident() not in where[1:]


# -- media -------------------------------------------------------------------------------------------------------------
FLAT = 600


def jpeg(width: int, height: int, parts: int = 0) -> str:
    """The header of a JPEG, with so many parts of EXIF before the size."""
    exif = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    size = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9) + b"\xff\xd9"
    return base64.b64encode(b"\xff\xd8" + exif * parts + size).decode()


def as_source(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


DATA_URL = f"data:image/png;base64,{png(640, 480)}"
SPELLED = [
    *(image_block(640, 480), image_url(640, 480), {"type": "input_image", "image_url": DATA_URL}),
    *({"type": "image", "source": source} for source in (DATA_URL, {"data": DATA_URL})),
    {"type": "file", "file": {"file_data": DATA_URL}},
    *(as_source(jpeg(640, 480, parts), "image/jpeg") for parts in (0, 1)),
]
UNREADABLE = [
    {"type": "image", "source": {}},
    *({"type": "image_url", "image_url": {"url": f"data:image/png{data}"}} for data in (",notbase64", ";base64,")),
    as_source(base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()),
    as_source(base64.b64encode(b"<svg width='1e999' height='-5'>").decode()),
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    as_source(jpeg(640, 480, parts=4), "image/jpeg"),  # beyond what is read
]
SIZED = [(image_block(1, 1), 1), (image_block(1_568, 100), 209), *((block, 410) for block in SPELLED)]
SCALED = [(image_block(2_000, 2_000), 1_600), (image_block(20_000, 10), media_tokens(image_block(1_568, 1), FLAT))]


@pytest.mark.parametrize(
    ("block", "tokens"), [*SIZED, *SCALED, *((block, FLAT) for block in UNREADABLE)], ids=lambda value: str(value)[:60]
)
def test_media_cost_the_pixels_that_they_are_scaled_down_to_or_a_flat_amount(
    block: dict[str, Any], tokens: int
) -> None:
    assert media_tokens(block, FLAT) == tokens
    assert media_tokens(block, 7) == (7 if block in UNREADABLE else tokens)
