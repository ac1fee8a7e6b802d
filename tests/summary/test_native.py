"""`summary_writer: native`: the provider compacts the conversation itself; the digest is the fallback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import ChatRequest

from amplifier_context_core.stores import Store
from amplifier_context_core.view.candidate import carrier_of
from amplifier_context_testing import checked
from amplifier_context_testing.summaries import with_summaries
from tests.messages import bare, digest, text
from tests.summary.native_provider import NativeProvider
from tests.summary.scripted import BUDGET, SESSION, summary_manager, wait_for_summaries

pytestmark = pytest.mark.kernel

SHORT = SESSION[:43]  # one compaction
ANSWER = "Twelve files were read."
NATIVE = {"summary_writer": "native", "token_meter": "estimate"}


def summarizing(request: Any) -> str:
    """A model that compacts when it is asked to, and answers anything else."""
    return ANSWER if request.metadata else "I go on."


@asynccontextmanager
async def anthropic(script: Any = summarizing, **config: Any) -> AsyncGenerator[Any]:
    yield SimpleNamespace(provider=NativeProvider(script, **config))


class Session:
    """A session of a loop with one provider; each request is sent."""

    def __init__(self, provider: Any, store: Store | None = None, **config: Any) -> None:
        self.provider = provider
        self.manager = summary_manager(provider, store=store, **{**NATIVE, **config})
        self.views: list[list[dict[str, Any]]] = []

    async def run(self, messages: list[dict[str, Any]], *, waits: bool = True) -> list[dict[str, Any]]:
        for message in messages:
            await self.manager.add_message(message)
            if message["role"] != "assistant":
                await self.view()
                if waits:
                    await wait_for_summaries(self.manager)
        return self.views[-1] if self.views else []

    async def view(self, provider: Any = None) -> list[dict[str, Any]]:
        view = await self.manager.get_messages_for_request(BUDGET, provider or self.provider)
        checked(view)
        self.views.append(view)
        return view


def carriers(view: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in view if "anthropic:compaction" in (message.get("metadata") or {})]


def chapters(view: list[dict[str, Any]]) -> list[int]:
    """First seqs of the chapters in a view."""
    return [int(found) for found in re.findall(r"<context_record>\\n\[m(\d+) ", text(view))]


def shown_upto(session: Session) -> int:
    """Highest seq that the carrier of the last view covers."""
    segments = session.manager.compactor.last_sent.view.checkpoint.segments
    return max(segment.last for segment in segments if carrier_of(segment))


async def sent(found: Any, view: list[dict[str, Any]]) -> None:
    """The provider accepts a view."""
    await found.provider.complete(ChatRequest.model_validate({"messages": view}))


async def test_the_carrier_is_first_alone_and_byte_for_byte_and_the_next_one_is_made_from_it() -> None:
    async with anthropic() as found:
        session = Session(found.provider)
        view = await session.run(SESSION)
        assert session.manager.compactor.compactions >= 2
        [carrier] = carriers(view)
        assert view[0] == carrier
        covered = shown_upto(session)
        assert all(first > covered for first in chapters(view)), "no chapter that it covers is sent beside it"
        results = [entry for entry in session.manager.snapshot() if entry.role == "tool" and entry.seq <= covered]
        assert len(results) > 5
        assert not any(entry.message["content"][:200] in text(view) for entry in results)
        made = found.provider.compactions
        shown = [carriers(view)[0] for view in session.views if carriers(view)]
        assert len({digest([one]) for one in shown}) <= len(made)
        blocks = [one["metadata"]["anthropic:compaction"]["block"] for one in shown]
        assert all(block["content"] == ANSWER for block in blocks)
        assert carriers(made[-1].messages)[0]["metadata"]["anthropic:compaction"]["block"] in blocks, (
            "of the one before"
        )
        assert all(one.answered for one in made)
        for one in session.views[-3:]:
            await sent(found, one)


@pytest.fixture(scope="module")
def digests() -> list[str]:
    """The views of the same session when no model is asked."""

    async def run() -> list[str]:
        session = Session(Odd(None), max_summary_calls=0)
        await session.run(SHORT)
        assert session.manager.compactor.compactions
        return [digest(bare(view)) for view in session.views]

    return asyncio.run(run())


class Odd:
    """A provider whose compaction is no good, in one way."""

    name = "anthropic"

    def __init__(self, result: Any) -> None:
        self._result = result
        self.asked = 0

    def get_info(self) -> Any:
        return SimpleNamespace(capabilities=[], defaults={"model": "wire-1", "context_window": 200_000})

    def supports_native_compaction(self) -> bool:
        return True

    def validate_compacted_context(self, message: Any) -> bool:
        return message["metadata"].get("accepted") is not False

    async def compact_context(self, request: Any) -> Any:
        self.asked += 1
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    async def complete(self, request: Any, **options: Any) -> Any:
        raise AssertionError("a model was asked for a text")


def carrier(model: str = "wire-1", *, text: str = ANSWER, **more: Any) -> dict[str, Any]:
    block = {"type": "compaction", "content": text, "signature": "c2ln"}
    state = {"version": 1, "model": model, "block": block}
    return {"role": "user", "content": "label", "metadata": {"anthropic:compaction": state, **more}}


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"kind": "text", "message": carrier()},
        {"kind": "native", "message": None},
        {"kind": "native", "message": {"role": "user", "content": "no carrier"}},
        {"kind": "native", "message": {**carrier(), "role": "robot"}},
        {"kind": "native", "message": carrier("another model")},
        {"kind": "native", "message": carrier(accepted=False)},
        {"kind": "native", "message": carrier(text="word " * 20_000)},
        ValueError("as the test asked for"),
    ],
)
async def test_with_no_compaction_for_the_model_of_the_session_the_views_are_the_digests_byte_for_byte(
    result: Any, digests: list[str]
) -> None:
    provider = Odd(result)
    session = Session(provider)
    await session.run(SHORT)
    assert provider.asked
    assert [digest(bare(view)) for view in session.views] == digests
    assert (await session.manager.explain())["summary"]["status"] == "failed"
    assert session.manager.limits.failures >= 1


@pytest.mark.parametrize("config", [{}, {"summary_model": "wire-2"}])
async def test_where_it_is_not_offered_there_is_one_warning_and_a_model_is_asked(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with anthropic(with_summaries(lambda request: "I go on."), compaction=bool(config)) as found:
        session = Session(found.provider, **config)
        await session.run(SESSION)
        assert not found.provider.compactions
        assert found.provider.exchanges
        warnings = [record for record in caplog.records if "summary_writer native" in record.getMessage()]
        assert len(warnings) == 1


async def test_its_calls_are_counted_and_compact_reports_the_words_of_the_carrier() -> None:
    async with anthropic() as found:
        session = Session(found.provider, max_summary_calls=2)
        await session.run(SESSION[:27])
        report = await session.manager.compact()
        assert (report["author"], report["chapter"]) == ("native", ANSWER)
        assert carriers(await session.view())
        await session.run(SESSION[27:])
        assert len(found.provider.compactions) == 2
        report = (await session.manager.explain())["summary"]
        assert (report["calls"], report["reason"]) == (2, "max_summary_calls")
        assert report["summary_cost"] > 0


class Slow(Odd):
    """A provider whose compaction comes when the test says so."""

    def __init__(self) -> None:
        super().__init__({"kind": "native", "message": carrier()})
        self.release = asyncio.Event()

    async def compact_context(self, request: Any) -> Any:
        await self.release.wait()
        return await super().compact_context(request)
