"""`summary_writer: native`: the provider compacts the conversation itself; the digest is the fallback."""

import hashlib
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import ChatRequest, ChatResponse

from amplifier_context_core.view import shared_cache
from tests.messages import bare, carrier, digest, text
from tests.places import Place
from tests.summary.scripted import SESSION, Message, Provider, drive, good, opened, summary_manager, view_of

pytestmark = pytest.mark.kernel
METADATA = "anthropic:compaction"
NATIVE = {"summary_writer": "native", "token_meter": "estimate"}
ANSWER = "Twelve files were read."


def carriers(view: list[Message]) -> list[Message]:
    return [message for message in view if METADATA in (message.get("metadata") or {})]


def made(model: str = "wire-1", text: str = ANSWER, **more: Any) -> Message:
    return carrier(text, model=model, signature=signed(model, text), **more)


def signed(model: str, text: str) -> str:
    return hashlib.sha256(f"{model}\0{text}".encode()).hexdigest()


class NativeProvider:
    """A provider that compacts a conversation itself, as provider-anthropic does, or answers in an odd way.

    A carrier is valid for the model that made it, first in a request, and as it was made. `compactions` are the
    messages of each request for one, in order.
    """

    name = "anthropic"

    def __init__(self, model: str = "wire-1", *, odd: Any = None) -> None:
        self.compactions: list[list[Message]] = []
        self._model, self._odd = model, odd

    def get_info(self) -> Any:
        defaults = {"model": self._model, "context_window": 200_000, "max_output_tokens": 8_192}
        return SimpleNamespace(id=self.name, capabilities=["tools"], defaults=defaults)

    def supports_native_compaction(self) -> bool:
        return True

    def validate_compacted_context(self, message: Mapping[str, Any]) -> bool:
        state = message["metadata"][METADATA]
        block = state["block"]
        if self._odd is not None:
            return message["metadata"].get("accepted") is not False
        return state["model"] == self._model and block["signature"] == signed(self._model, block["content"])

    async def compact_context(self, request: ChatRequest) -> Any:
        self.compactions.append(self._read(request))
        if isinstance(self._odd, Exception):
            raise self._odd
        usage = {"input_tokens": 1_000, "output_tokens": len(ANSWER) // 4}
        return self._odd or {"kind": "native", "message": made(self._model), "usage": usage}

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        raise AssertionError("a model was asked for a text")

    async def accept(self, view: list[Message]) -> None:
        """Read a request of the session."""
        self._read(ChatRequest.model_validate({"messages": view}))

    def _read(self, request: ChatRequest) -> list[Message]:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        found = carriers(messages)
        first = next((one for one in messages if one["role"] not in ("system", "developer")), None)
        assert found in ([], [first]), "a carrier must precede the conversation"
        assert all(map(self.validate_compacted_context, found))
        return messages


SHORT = SESSION[:43]  # one compaction


async def test_the_carrier_is_first_alone_and_byte_for_byte_and_the_next_one_is_made_from_it() -> None:
    provider = NativeProvider()
    manager = summary_manager(provider, **NATIVE)
    views = await drive(manager, SESSION, provider)
    assert manager.compactor.compactions >= 2
    assert carriers(views[-1]) == [views[-1][0]]
    covered = manager.records.valid()[-1].upto
    beside = re.findall(r"<context_record>\\n\[m(\d+) ", text(views[-1]))
    assert all(int(first) > covered for first in beside), "no chapter that it covers is sent beside it"
    results = [entry for entry in manager.snapshot() if entry.role == "tool" and entry.seq <= covered]
    assert len(results) > 5
    assert not any(entry.message["content"][:200] in text(views[-1]) for entry in results)
    blocks = [carriers(view)[0]["metadata"][METADATA]["block"] for view in views if carriers(view)]
    assert all(block["content"] == ANSWER for block in blocks)
    (former,) = carriers(provider.compactions[-1])
    assert former["metadata"][METADATA]["block"] in blocks, "of the one before"
    await provider.accept(views[-1])
    assert (await manager.explain())["summary"]["calls"] == len(provider.compactions)
    other = NativeProvider(model="wire-2")
    theirs = await view_of(manager, other)
    assert carriers(theirs) == []
    assert "<context_record>" in text(theirs), "another model cannot read it"
    pinned = manager.snapshot()[4]
    await manager.pin(pinned.mark)
    for one in (provider, other):
        assert pinned.message["content"] in [message["content"] for message in await view_of(manager, one)]


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "text", "message": made()},
        {"kind": "native", "message": {**made(), "role": "robot"}},
        {"kind": "native", "message": made("another model")},
        {"kind": "native", "message": made(accepted=False)},
        {"kind": "native", "message": made(text="word " * 20_000)},
        ValueError("as the test asked for"),
    ],
)
async def test_with_no_compaction_for_the_model_of_the_session_the_views_are_the_digests(result: Any) -> None:
    provider = NativeProvider(odd=result)
    manager, unasked = (summary_manager(provider, **NATIVE, max_summary_calls=calls) for calls in (20, 0))
    views, digests = await drive(manager, SHORT, provider), await drive(unasked, SHORT, provider)
    assert provider.compactions
    assert digest(bare(views[-1])) == digest(bare(digests[-1]))
    assert (await manager.explain())["summary"]["status"] == "failed"
    assert manager.limits.failures >= 1


@pytest.mark.parametrize("config", [{}, {"summary_model": "wire-2"}])
async def test_where_it_is_not_offered_a_warning_says_so_and_a_model_is_asked(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    provider, writer = NativeProvider(), Provider(good)
    monkey: Any = provider
    monkey.supports_native_compaction, monkey.complete = (lambda: bool(config)), writer.complete
    await drive(summary_manager(provider, **NATIVE, **config), SESSION, provider)
    assert provider.compactions == []
    assert writer.requests
    assert len([record for record in caplog.records if "summary_writer native" in record.getMessage()]) == 1


def reopened(place: Place, provider: Any) -> Any:
    """The session as another process opens it: nothing is shared."""
    shared_cache.clear()
    return opened(place, provider, **NATIVE)


async def test_another_process_begins_with_the_same_carrier_and_takes_it_back(place: Place) -> None:
    provider = NativeProvider()
    manager = reopened(place, provider)
    before = (await drive(manager, SESSION, provider))[-1]
    await manager.close()
    asked = len(provider.compactions)
    manager = reopened(place, provider)
    assert digest(await view_of(manager, provider)) == digest(before)
    assert len(provider.compactions) == asked
    assert (await manager.undo())["undone"]
    after = await view_of(manager, provider)
    assert digest(after) != digest(before)
    await manager.close()
    manager = reopened(place, provider)
    assert digest(await view_of(manager, provider)) == digest(after)
    await provider.accept(after)
    await manager.close()


async def test_what_is_erased_is_in_no_carrier_of_the_next_process(place: Place) -> None:
    provider = NativeProvider()
    manager = reopened(place, provider)
    assert carriers((await drive(manager, SESSION, provider))[-1])
    mark = manager.snapshot()[4].mark
    await manager.close()
    again = reopened(place, provider)
    assert await again.forget([mark]) == [mark]
    await again.close()
    last = reopened(place, provider)
    assert await last.records.verified() == []
    view = await view_of(last, provider)
    assert ANSWER not in text(view)
    assert "<context_record>" in text(view)
    await last.close()
