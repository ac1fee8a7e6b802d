"""Models that a compaction can ask: providers of the kernel, and anything with `complete`."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ConfigError
from amplifier_context_core.compat import compact_context
from amplifier_context_testing.replay.provider import ReplayProvider
from tests.compat.conversations import Scribe, of

from .samples import talk, user


class Transcriber:
    """A transport of another framework: a method from prompt to answer."""

    def __init__(self, answer: Any = "They talked.") -> None:
        self.complete = Scribe(answer)


@pytest.mark.kernel
async def test_a_provider_of_the_kernel_is_sent_one_request_without_tools() -> None:
    provider = ReplayProvider({"script": ["They asked."], "check": True})
    compacted = await compact_context(await of(*talk(30)), transport=provider)
    assert compacted is not None
    assert "\nThey asked.\n" in compacted[0].text
    assert compacted[1:] == talk(30)[-6:]
    assert (provider.requests, provider.violations) == (1, [])
    (request,) = provider.last_request
    assert request["role"] == "user"
    assert "| question 4\n" in str(request["content"])


@pytest.mark.kernel
@pytest.mark.parametrize(
    "text", ["word " * 900, "\u4f60\u597d" * 900, "a1b2c3d4" * 400], ids=["words", "Chinese", "hex"]
)
async def test_the_prompt_fits_the_window_of_the_provider(text: str) -> None:
    provider = ReplayProvider({"script": ["They talked."], "context_window": 12_000, "max_output_tokens": 2_000})
    history = [user("the very first"), *(user(text) for _ in range(40)), user("the very last")]
    assert await compact_context(await of(*history), transport=provider, keep_recent=0) is not None
    prompt = str(provider.last_request[0]["content"])
    assert "| the very first\n" in prompt
    assert "| the very last\n" in prompt
    assert prompt.count("] user\n") > 2, "messages beside the first and the last"
    assert re.search(r"\n\[left out here, for want of room: \d+ messages\]\n", prompt)


@pytest.mark.parametrize(
    "answer",
    [
        "They asked.",
        SimpleNamespace(content="They asked."),
        SimpleNamespace(content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "They asked."}]),
        SimpleNamespace(content=[SimpleNamespace(type="text", text="They asked.")]),
    ],
    ids=["text", "content", "blocks", "block objects"],
)
@pytest.mark.parametrize("by_name", [True, False])
async def test_anything_with_complete_is_passed_the_prompt(answer: Any, by_name: bool) -> None:
    transport = Transcriber(answer)
    context = await of(*talk(30))
    compacted = await (
        compact_context(context, transport=transport) if by_name else compact_context(context, transport)
    )
    assert compacted is not None
    assert "\nThey asked.\n" in compacted[0].text
    assert [prompt.count("<quoted_output>") for prompt in transport.complete.prompts] == [1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "^transport: needs one model"),
        ({"complete": Scribe(), "transport": Transcriber()}, "^transport: needs one model"),
        ({"transport": Scribe()}, "^transport: must have a method `complete`; Scribe is no model"),
        ({"complete": 5}, "^complete: must be an async function, or have a method `complete`; int is no model"),
    ],
    ids=["none", "two", "a function as transport", "a number"],
)
async def test_one_model_is_needed_however_short_the_conversation(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        await compact_context(await of(), **given)
