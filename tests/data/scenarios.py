"""Sessions that use what a plain replay does not, for the guard of views.

Each scenario is a session that is hashed as it goes. It states the time itself, so a change in how often the clock is
read changes nothing. It uses the manager's own methods alone, so the insides may change.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from amplifier_context_core import (
    ContextManager,
    MemoryStore,
    Plugins,
    Store,
    TokenCounter,
    approx_token_counter,
    count_tokens,
    exact_token_counter,
    load_config,
)
from amplifier_context_core.items import ContextItem
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.view import shared_cache
from amplifier_context_recall.lacking import names_lacking_in
from tests.data.scenario_messages import call, carrier, large_outputs, smallest, thoughtful, work
from tests.managers import ToolHost
from tests.messages import result

Message = dict[str, Any]

BUDGET = 6_000  # tokens; some five compactions of a session of 150 messages
EVERY = 10  # requests between two reports that are hashed
_START = datetime(2026, 1, 1, tzinfo=UTC)
_STEP, _PAUSE = 20, 4_000  # seconds between two messages, and before some messages of people: a cache gets cold
_SESSION = "guarded"

ANTHROPIC = SimpleNamespace(name="anthropic", default_model="claude-opus-5")
OPENAI = SimpleNamespace(name="openai", default_model="gpt-5.6")
# Provider and model by family: what each reads of thinking, for how long it caches, which ids it takes.
PROVIDERS = {
    "anthropic-bound": ("anthropic", "claude-opus-5-5"),
    "anthropic-required": ("anthropic", "claude-sonnet-4-5"),
    "openai": ("openai", "gpt-5.6"),
    "openai-older": ("openai", "gpt-5"),
    "gemini": ("gemini", "gemini-3-pro"),
    "mistral": ("mistral", "mistral-large"),
    "deepseek": ("deepseek", "deepseek-v4"),
    "ollama": ("ollama", "qwen3"),
    "unknown": ("somewhere", ""),
}


class Scene:
    """A session whose views and reports are hashed; the hashes do not depend on its store and its name."""

    def __init__(
        self,
        store: Callable[[], Store] | None = None,
        session_id: str = _SESSION,
        counter: TokenCounter | None = None,
        **config: Any,
    ) -> None:
        self.provider: Any = None  # of requests
        self.compactions = 0  # of the last report
        self.tools = ["read_file", "bash"]
        self.host = ToolHost(lambda: {one: SimpleNamespace(name=one, description=f"Runs {one}.") for one in self.tools})
        self._store = store or in_memory()
        self._id = session_id
        self._counter = counter
        self._config = load_config({"token_counter": "heuristic", "max_tokens": BUDGET, **config})
        self._views, self._reports = hashlib.sha256(), hashlib.sha256()
        self._requests = 0
        self._seconds = 0
        self._open()

    def _open(self) -> None:
        shared_cache.clear()  # another process finds none of these views
        self.manager = ContextManager(
            self._config,
            session_id=self._id,
            store=self._store(),
            counter=self._counter,
            plugins=Plugins(),
            clock=lambda: (_START + timedelta(seconds=self._seconds)).isoformat(timespec="milliseconds"),
        )
        self.manager.requests.host = self.host

    @property
    def hashes(self) -> str:
        """The hash of all views, and that of all reports."""
        return f"{self._views.hexdigest()[:16]} {self._reports.hexdigest()[:16]}"

    def saw(self, view: object) -> None:
        """Hash what a request shows."""
        self._feed(self._views, view)

    def noted(self, report: object) -> None:
        """Hash what a method reports."""
        self._feed(self._reports, report)

    def _feed(self, digest: Any, value: object) -> None:
        digest.update(json.dumps(value, sort_keys=True).replace(self._id, _SESSION).encode())

    async def compact(self, focus: str | None = None) -> None:
        """Compact, and hash all figures but the time that it took."""
        report = await self.manager.compact(focus)
        self.noted({key: value for key, value in report.items() if key != "duration_ms"})

    async def report(self) -> None:
        report = await self.manager.explain()
        self.compactions = report["compactions"]
        self.noted(report)
        self.noted(await self.manager.chapters())
        self.noted(await self.manager.cache_health())

    async def reopen(self) -> None:
        """Continue in another manager, as after a restart."""
        await self.manager.close()
        self._open()

    async def ask(self, budget: int | None = None, provider: Any = None) -> list[Message]:
        view = await self.manager.get_messages_for_request(budget, provider or self.provider)
        self.saw(view)
        self._requests += 1
        if self._requests % EVERY == 0:
            await self.report()
        return view

    async def add(self, message: Message, seconds: int = _STEP) -> None:
        """Add a message, some seconds after the one before."""
        self._seconds += seconds
        await self.manager.add_message(dict(message))

    async def play(self, messages: Iterable[Message], budget: int | None = None) -> None:
        """Add messages; before each answer a request is made, and its usage reported."""
        for message in messages:
            if message["role"] == "assistant":
                view = await self.ask(budget)
                self.manager.on_request()
                tokens = count_tokens(view, approx_token_counter) * 6 // 5 + 300
                usage = Usage(tokens, 50, cache_read_tokens=tokens * (self._requests % 4) // 4)
                name, model = getattr(self.provider, "name", None), getattr(self.provider, "default_model", None)
                self.manager.on_response(Response(model=model, provider=name, usage=usage))
            pauses = message["role"] == "user" and self._requests % 3 == 0
            await self.add(message, _PAUSE if pauses else _STEP)

    async def end(self) -> str:
        """Return the hashes, after a last view and a last report."""
        await self.ask()
        await self.report()
        await self.manager.close()
        assert self.compactions, "a session that never compacts guards little"
        return self.hashes


def in_memory() -> Callable[[], Store]:
    """Return a maker of stores that share their data."""
    memory = MemoryStore()
    return lambda: memory


async def named_provider(name: str, model: str) -> str:
    """A session with one provider, with its window and its prices; its answers have thinking, its tools change."""
    scene = Scene(output_reserve_fraction=0.5, safety_margin=100, merge_consecutive=name == "ollama")
    prices = {"input_per_million": 5.0, "cache_read_per_million": 0.5, "cache_write_per_million": 6.25}
    info = {"context_window": BUDGET, "max_output_tokens": 800, "pricing": prices if name == "anthropic" else None}
    scene.provider = SimpleNamespace(name=name, default_model=model, get_model_info=lambda: info)
    messages = thoughtful(work())
    await scene.play(messages[:70])
    scene.tools.append("search")
    await scene.play(messages[70:120])
    scene.manager.on_context_length_error()
    await scene.play(messages[120:])
    return await scene.end()


async def changing_providers() -> str:
    """A session with thinking whose provider is another one every few requests."""
    scene = Scene()
    families = [SimpleNamespace(name=name, default_model=model) for name, model in PROVIDERS.values()]
    messages = thoughtful(work())
    for number in range(0, len(messages), 8):
        scene.provider = families[number // 8 % len(families)]
        await scene.play(messages[number : number + 8])
    return await scene.end()


async def carriers() -> str:
    """A session whose providers compact it themselves, and which goes from one to the other."""
    scene = Scene()
    messages = work()
    shown = 0
    for number in range(0, len(messages), 30):
        scene.provider = (ANTHROPIC, OPENAI)[number // 30 % 2]
        await scene.play(messages[number : number + 20])
        await scene.add(call(f"late-{number}"))
        name, model = scene.provider.name, scene.provider.default_model
        await scene.add(carrier(name, model, f"We came to {number}. " * 20))
        await scene.add(result(f"late-{number}", "It came late. " * 30))
        await scene.play(messages[number + 20 : number + 30])
        for reader in (ANTHROPIC, OPENAI, SimpleNamespace(name="anthropic", default_model="claude-opus-4-8")):
            shown += "Native compacted" in json.dumps(await scene.ask(provider=reader))
        await scene.reopen()
    assert shown
    return await scene.end()


async def items() -> str:
    """A session with a pool and a queue that change, overflow and are resumed."""
    scene = Scene(pool_limit=5, queue_limit=3)
    messages = work()
    for number in range(0, len(messages), 6):
        pool, queue = scene.manager.pool, scene.manager.queue
        if number % 4 == 0:
            await pool.add(ContextItem({"size": number}, f"table of {number} rows\nand more", f"t{number}"))
        if number % 18 == 0:
            await queue.append(ContextItem(f"step {number} done " * (number // 3 + 1)), ContextItem([number, None]))
        if number == 60:
            await pool.remove(pool.items[0].id or "")
        if number == 90:
            await queue.clear()
        await scene.play(messages[number : number + 6])
        if number in (54, 108):
            await scene.reopen()
            await scene.manager.ready()
    assert scene.manager.pool
    return await scene.end()


async def pins() -> str:
    """A session with pins, short forms, a focus, texts to retain, and recalls."""
    scene = Scene(pin_share=0.3)
    messages = work()
    await scene.play(messages[:40])
    marks = smallest(messages[:40])
    for mark in marks[:3]:
        await scene.manager.pin(mark)
    await scene.add({"role": "user", "content": "Never touch the parser.", "metadata": {"pinned": True}})
    await scene.play(messages[40:80])
    await scene.manager.pin(marks[1], False)
    answered = [message["tool_call_id"] for message in messages[:80] if message["role"] == "tool"]
    for id in answered[-3:]:
        await scene.manager.compact_summary(id, f"what {id} said, in short")
    await scene.manager.compact_summary("to-come", "what is to come, in short")
    await scene.add(call("to-come"))
    await scene.add(result("to-come", "It is here. " * 200))
    await scene.compact("the parser")
    await scene.play(messages[80:110])
    scene.saw(await scene.manager.request_retention(retain_contents=["Never touch the parser."], token_budget=BUDGET))
    found = await scene.manager.search("cache token", 5)
    scene.noted([found, await names_lacking_in(scene.manager, found, 20), await scene.manager.recall_room(400)])
    scene.noted([await scene.manager.recall(mark) for mark in found])
    await scene.play(messages[110:])
    return await scene.end()


async def offloading(**config: Any) -> str:
    """A session with outputs that a view has no room for."""
    scene = Scene(max_tokens=2 * BUDGET, offload_above=0.1, output_share=0.15, **config)
    await scene.play(work(40))
    await scene.manager.compact_summary("big-diff", "ninety lines were renamed")
    await scene.play(large_outputs())
    await scene.play(work(80, 3))
    return await scene.end()


async def two_budgets() -> str:
    """A session that is asked for a large and for a small view in turn."""
    scene = Scene()
    messages = work()
    for number in range(0, len(messages), 3):
        await scene.play(messages[number : number + 3], BUDGET // (1 + number // 3 % 2 * 2))
        await scene.ask(BUDGET // 3)
    return await scene.end()


async def undo() -> str:
    """A session whose compactions are taken back, the newest and that of a mark, also after a resume."""
    scene = Scene(target_usage=0.3, compact_threshold=0.9, cadence="auto")
    undone = 0
    for number, messages in enumerate(work(240)[start : start + 20] for start in range(0, 240, 20)):
        await scene.play(messages, 2 * BUDGET)
        await scene.compact()
        await scene.ask()
        if number % 3 == 2:
            await scene.reopen()
        report = await scene.manager.undo("m20" if number % 2 else None)
        scene.noted(report)
        undone += report["undone"]
        await scene.ask()
    assert undone > 1
    return await scene.end()


async def edits() -> str:
    """A session that is interrupted, edited, partly erased, and cleared by its host."""
    scene = Scene()
    messages = work()
    await scene.play(messages[:50])
    await scene.add(call("cut-off"))
    scene.noted(await scene.manager.interrupt())
    await scene.ask()
    await scene.play(messages[50:80])
    scene.noted(sorted(await scene.manager.forget(["m3"], containing="ledger")))
    await scene.ask()
    kept = await scene.manager.get_messages()
    await scene.manager.set_messages([*kept[:60], {"role": "user", "content": "Begin again from here."}])
    await scene.play(messages[80:110])
    await scene.manager.set_messages(await scene.ask())
    scene.noted(await scene.manager.get_messages())
    await scene.play(messages[110:])
    await scene.report()
    await scene.manager.clear()
    await scene.play(work(60, 9))
    return await scene.end()


async def exact_counts() -> str:
    """A session that is counted with a vocabulary, which must be installed."""
    scene = Scene(counter=exact_token_counter())
    await scene.play(work())
    return await scene.end()


async def resumed(store: Callable[[], Store], session_id: str) -> str:
    """A session that is resumed between turns, amid a round, after an edit, and before and after compactions."""
    scene = Scene(store, session_id)
    scene.provider = ANTHROPIC
    messages = thoughtful(work(120))
    for number in range(0, len(messages), 17):
        await scene.play(messages[number : number + 17])
        await scene.reopen()
        await scene.ask(BUDGET // (1 + number % 2))
        if number == 51:
            await scene.manager.pin(smallest(messages[:50])[0])
            await scene.compact("the loader")
        if number == 68:
            scene.noted(sorted(await scene.manager.forget(["m7"])))
            await scene.reopen()
    scene.noted(await scene.manager.get_messages())
    return await scene.end()


async def forked(store: Callable[[], Store], session_id: str) -> str:
    """A session, its whole fork, a shorter fork, and a child that a host made; all of them continue."""
    messages = work(160)
    parent = Scene(store, session_id)
    await parent.play(messages[:100])
    await parent.report()
    kept = await parent.manager.get_messages()
    await parent.manager.close()
    files = store()
    await files.fork(session_id, f"{session_id}-all")
    await files.fork(session_id, f"{session_id}-part", 41)
    await files.close()
    ends: list[str] = []
    for name in ("-all", "-part", "-child"):
        scene = Scene(store, f"{session_id}{name}")
        if name == "-child":
            await scene.manager.set_messages(kept)
        await scene.ask()
        await scene.play(messages[100:130])
        ends.append(await scene.end())
    parent = Scene(store, session_id)
    await parent.play(messages[130:])
    parent.noted(ends)
    return await parent.end()


SCENARIOS: dict[str, Callable[[], Awaitable[str]]] = {
    **{f"provider-{key}": lambda names=names: named_provider(*names) for key, names in PROVIDERS.items()},
    "providers-in-turn": changing_providers,
    "carriers": carriers,
    "items": items,
    "pins": pins,
    "offloading": offloading,
    "offloading-without-tables": lambda: offloading(json_tables=False, max_tool_result_bytes=4_000),
    "two-budgets": two_budgets,
    "undo": undo,
    "edits": edits,
    "exact": exact_counts,
}
# Each is given a maker of stores with the same data, and a session id.
STORED: dict[str, Callable[[Callable[[], Store], str], Awaitable[str]]] = {"resumed": resumed, "forked": forked}
