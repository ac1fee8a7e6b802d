"""What the tests of context-summary share: a manager with a scripted provider, and an answerer by rules."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from amplifier_core import ChatRequest, ChatResponse

from amplifier_context_core.stores import Store
from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from amplifier_context_testing import checked
from tests.messages import work
from tests.places import Place
from tests.writers import response_of

Message = dict[str, Any]
Script = Callable[[ChatRequest, int], "str | ChatResponse | Awaitable[str | ChatResponse]"]
BUDGET = 4_000
SESSION = work(60, output=900)  # it is compacted for the first time before message 41
WORDS = "in a model's words"  # in each chapter with a text


class Provider:
    """A provider of the kernel's interface that answers by a script, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[ChatRequest] = []

    def get_info(self) -> Any:
        return SimpleNamespace(capabilities=[], defaults={"context_window": 200_000})

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        self.requests.append(request)
        answer = self._script(request, len(self.requests))
        if not isinstance(answer, (str, ChatResponse)):
            answer = await answer
        return answer if isinstance(answer, ChatResponse) else response_of(answer)

    def text(self, number: int = -1) -> str:
        """Text of the user's message of a request."""
        return str(self.requests[number].messages[1].content)


class HeldBack(Provider):
    """A provider whose answer of a number, by default a good one, comes when the test says so; the others at once."""

    def __init__(self, number: int = 1, *, answer: str | None = None, ignores_cancelling: bool = False) -> None:
        super().__init__(self._answer)
        self.release, self.asked = asyncio.Event(), asyncio.Event()
        self._number, self._held, self._ignores_cancelling = number, answer, ignores_cancelling

    async def _answer(self, request: ChatRequest, number: int) -> str:
        if number != self._number:
            return good(request, number)
        self.asked.set()
        while not self.release.is_set():
            with suppress(*([asyncio.CancelledError] if self._ignores_cancelling else [])):
                await self.release.wait()
        return good(request, number) if self._held is None else self._held


def good(request: ChatRequest, number: int) -> str:
    """A text made of the request by rules: a fact of each result, the newest rule, a task and its end."""
    text = str(request.messages[1].content)
    former, history = text.split("[history ", 1)
    results = re.findall(r"^(m\d+) result[^:\n]*: (.{1,60})", history, re.M)
    people = re.findall(r"^(m\d+) person: (.+)", history, re.M)
    seen = [f"SAW {line[:40]} ({mark})" for mark, line in results[-4:]]
    findings = [*re.findall(r"^- (SAW .*)", former, re.M), *seen]
    lines = ["## Person", *(f"- WANTS {said[:40]} ({mark})" for mark, said in people[:1]), "## Work"]
    lines += [f"- Done: PART {number} finished ({mark})" for mark, _ in results[-1:]]
    lines += [f"- Open: TASK number {number}", f"- Next: STEP {number}"]
    return "\n".join([*lines, "## Findings", *(f"- {line}" for line in findings)])


# Compactions follow soon after each other, so that a short session has many.
OFTEN: dict[str, Any] = {"cadence": "auto", "target_usage": 0.5, "compact_threshold": 0.92, "protected_recent": 0.3}


def summary_manager(
    provider: Any, *, store: Store | None = None, hooks: Any = None, session_id: str = "s", **config: Any
) -> Any:
    """A manager whose only mounted provider is this one; keyword arguments are config keys."""
    keys = {"token_counter": "heuristic", "max_tokens": BUDGET, "summary_spend": 100.0, **OFTEN, **config}
    mounted = {} if provider is None else {"scripted": provider}
    settings = load_summary_config(keys)
    return SummaryManager(settings, session_id=session_id, store=store, hooks=hooks, providers=lambda: mounted)


def opened(place: Place, provider: Any, name: str = "s", **config: Any) -> Any:
    """The session of a place, as each process opens it."""
    return summary_manager(provider, store=place.store(), session_id=place.session_id(name), **config)


async def until_asked(manager: Any, provider: HeldBack, messages: list[Message]) -> int:
    """Add messages until the held call is made; how many there are."""
    for number, message in enumerate(messages, 1):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            while manager.writer.is_running and not provider.asked.is_set():
                await asyncio.sleep(0.001)
        if provider.asked.is_set():
            return number
    raise AssertionError("the held call was not made")


async def wait_for_summaries(manager: Any) -> None:
    await manager.writer.wait(30)
    await asyncio.sleep(0)


async def view_of(manager: Any, provider: Any = None) -> list[Message]:
    """The view of a request, valid for every provider."""
    view = await manager.get_messages_for_request(BUDGET, provider)
    return checked(view) if view else []


async def drive(manager: Any, messages: Iterable[Message], provider: Any = None, *, waits: bool = True) -> list[Any]:
    """Add messages, and ask for a view before each answer, as a loop does; the views."""
    views: list[list[Message]] = []
    for message in messages:
        await manager.add_message(message)
        if message["role"] != "assistant":
            views.append(await view_of(manager, provider))
            if waits:
                await wait_for_summaries(manager)
    return views
