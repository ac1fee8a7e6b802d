"""docs/reference.md: its tables name what real sessions give, all of it and nothing else."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager, Draft, Goal, Snapshot, Strategy, load_config
from amplifier_context_core import errors as core_errors
from amplifier_context_core.compaction.ladder import build_ladder
from amplifier_context_core.economics.cold_cache import PrefixBreak
from amplifier_context_core.events import COMPACTION, EVENTS, POST_COMPACT, WARNING
from amplifier_context_core.kernel import mount_manager
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.plugins import Plugins
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing import EventRecorder
from tests.managers import feed
from tests.messages import call, result, rounds, says, system, user, words, work
from tests.pages import between, read

PAGE = read("docs/reference.md")
NONE = type(None)
PLAIN = {one.__name__: (one,) for one in (str, int, float, bool, list, dict)}
TYPES: Mapping[str, tuple[type, ...]] = {**PLAIN, "str or None": (str, NONE), "int or None": (int, NONE)}
BUDGET = 4_000


def table(name: str) -> list[list[str]]:
    """Rows of a table of the page, cell by cell; or of a list of keys, each with its type and its meaning."""
    lines = between(PAGE, name).split("\n")
    if lines[0].startswith("|"):
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    found = [re.fullmatch(r"- (`[^`]+`|\*.+\*)(?: \((.+?)\))?(?:: (.*))?", line) for line in lines]
    assert all(found), name
    return [list(row.groups("")) for row in found if row]


def documented(name: str) -> dict[str, str]:
    found = {row[0].strip("`"): row[1] for row in table(name) if not row[0].startswith("*")}
    return (documented(POST_COMPACT) | found) if name == COMPACTION else found


def flat(payload: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of a payload as the tables write it, ``rounds[].mark``, with its value."""
    for key, value in payload.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from flat(item, f"{prefix}{key}[].")


def sent_tokens(manager: ContextManager) -> int:
    return manager.compactor.last_sent.counted if manager.compactor.last_sent else 0


class Fails(Strategy):
    name = "fails"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        raise RuntimeError("on purpose")


class Sessions:
    """Real sessions, in which everything happens that a table speaks of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hooks = HookRegistry()
        self.recorder = EventRecorder(self.hooks, list(EVENTS))
        self.reports: list[dict[str, Any]] = []
        self.compacted: list[dict[str, Any]] = []
        self.health: dict[str, Any] = {}

    def manager(self, name: str, **config: Any) -> ContextManager:
        settings = load_config({"token_counter": "heuristic", "max_tokens": BUDGET, "token_meter": "actual", **config})
        parts: Any = {"ladder": [Fails(), *build_ladder(settings, Plugins())], "plugins": Plugins()}
        return ContextManager(settings, session_id=name, hooks=self.hooks, store=JsonlStore(self.folder), **parts)

    async def end(self, manager: ContextManager) -> None:
        await manager.get_messages_for_request()
        self.reports.append(await manager.explain())
        await manager.close()

    async def an_ordinary_one(self) -> None:
        manager = self.manager("ordinary")
        self.reports.append(await manager.explain())
        await manager.add_message(system())
        for number in range(80):
            await feed(manager, work(1, task=f"Prompt {number}.")[:1] if number % 20 == 0 else [])
            await feed(manager, rounds(1, start=number))
            await manager.get_messages_for_request()
            manager.on_response(Response("m", "p", Usage(sent_tokens(manager) * 2 + 300), "stop", None))
            await manager.add_message(says(f"Read {number}."))
            if number % 8 == 0:
                self.reports.append(await manager.explain())
        self.compacted.append(await manager.compact())
        self.compacted.append(await manager.compact())
        await manager.close()

    async def one_with_a_pause(self) -> None:
        manager = self.manager("paused")
        talk = [*work(35), says(), user("Now the rest.")]
        for number, message in enumerate(talk):
            hour = 9 if number < len(talk) - 1 else 18
            await manager.add_message({**message, "metadata": {"timestamp": f"2026-01-05T{hour:02}:00:00.000+00:00"}})
        await self.end(manager)

    async def one_with_the_trap_of_a_provider(self) -> None:
        """It caches nothing of the request after a compaction; see docs/caching.md."""
        manager = self.manager("trap", cadence="auto", target_usage=0.5, max_tokens=16_000)
        await feed(manager, work(1))
        compactions = 0
        for number in range(60):
            await manager.get_messages_for_request(None, SimpleNamespace(name="anthropic"))
            tokens = sent_tokens(manager)
            cached = tokens - 100 if compactions == manager.compactor.compactions else 0
            compactions = manager.compactor.compactions
            manager.on_response(Response("m", "anthropic", Usage(tokens, 10, cached), "stop", None))
            await feed(manager, rounds(1, start=number, output=1_600))
        self.reports.append(await manager.explain())
        self.health = await manager.cache_health()
        await manager.close()

    async def one_that_is_too_full(self) -> None:
        for name, size, config in (("floor", 30_000, {}), ("overflow", 60_000, {"max_tokens": 60})):
            manager = self.manager(name, **config)
            await feed(manager, [system("s " * 300), user("word " * (size // 5)), *rounds(6)])
            await self.end(manager)

    async def one_that_reads_again(self) -> None:
        manager = self.manager("again", max_tokens=8_000)
        for number in range(80):
            path = f"src/part_{number % 10}.py"
            await feed(manager, [call("c", path=path), result("c", words(f"part_{number % 10}_", 1_000))])
            await manager.get_messages_for_request()
        await manager.close()

    async def one_that_is_damaged(self) -> None:
        manager = await feed(self.manager("damaged"), work(5))
        await manager.close()
        (file,) = self.folder.rglob("damaged/context.db")
        file.unlink()
        await self.end(self.manager("damaged"))

    async def one_that_never_was(self) -> None:
        manager = self.manager("never")
        await manager.session.warn_if_unknown()
        await self.end(await feed(manager, work(1)))

    async def one_with_two_writers(self) -> None:
        first = await feed(self.manager("shared"), work(3))
        second = self.manager("shared", on_conflict="fork")
        await feed(second, rounds(1, start=50))
        await self.end(second)
        await first.close()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    sessions = Sessions(tmp_path_factory.mktemp("sessions"))

    async def run() -> None:
        for name in [name for name in vars(Sessions) if name.startswith(("an_", "one_"))]:
            await getattr(sessions, name)()

    asyncio.run(run())
    return sessions


def payloads(seen: Sessions, name: str) -> list[Mapping[str, Any]]:
    """What sessions gave, without what the kernel adds to events."""
    if name == "explain":
        return list(seen.reports)
    sent = [event.data for event in seen.recorder.records if event.name == name]
    return [{key: value for key, value in data.items() if key != "timestamp"} for data in sent]


@pytest.mark.parametrize("name", [*EVENTS, "explain"])
def test_a_table_names_each_key_that_sessions_give_with_its_type_and_no_other(seen: Sessions, name: str) -> None:
    given = [(key, value) for payload in payloads(seen, name) for key, value in flat(payload)]
    types = documented(name)
    assert {key for key, _ in given} == set(types)
    for key, value in given:
        assert type(value) in TYPES[types[key]], f"{key} is {value!r}, not {types[key]}"


def test_each_reason_of_a_warning_is_listed_and_occurs(seen: Sessions) -> None:
    warnings = payloads(seen, WARNING)
    assert {payload["reason"] for payload in warnings} == {row[0].strip("`") for row in table("reasons")}
    for payload in warnings:
        assert ("members" in payload) == (payload["reason"] in ("overflow", "floor"))
        assert ("sources" in payload) == ("tokens" in payload) == (payload["reason"] == "re-reads")
        assert ("budget" in payload) == ("members" in payload or "sources" in payload)


def test_a_manual_compaction_and_the_report_of_caches_return_what_the_page_says(seen: Sessions) -> None:
    done, again = seen.compacted
    assert set(done) == {"compacted", *(key for key in documented(POST_COMPACT) if "[]" not in key)}
    assert (done["compacted"], again) == (True, {"compacted": False, "reason": again["reason"]})
    assert {key for key, _ in flat(seen.health) if not key.startswith("breaks.")} == set(documented("cache_health"))
    (row,) = (row for row in table("cache_health") if row[0] == "`breaks`")
    assert {*re.findall(r"`([\w ]+)`", row[2])} == {*PrefixBreak} >= set(seen.health["breaks"]) == {"provider setting"}


# -- capabilities ------------------------------------------------------------------------------------------------------
async def test_the_page_lists_every_capability_with_its_arguments_and_what_it_returns(tmp_path: Path) -> None:
    coordinator = MockCoordinator()
    manager = await feed(Sessions(tmp_path).manager("s"), work(3, task="Do it."))
    registered: list[str] = []
    coordinator.register_capability = lambda name, value: registered.append(name)  # type: ignore[method-assign]
    await mount_manager(coordinator, manager, "context-test")
    listed = {row[0].strip("`").partition("(")[0]: row for row in table("capabilities")}
    contracts = {row[0].strip("`").partition("(")[0] for row in table("contracts")}
    assert sorted([*listed, *contracts]) == sorted(registered)
    arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "context.recall": (("m2",), {}),
        "context.recall_room": ((10,), {}),
        "context.search": (("file",), {}),
        "context.pin": (("m2",), {}),
        "context.compact_summary": (("call_0", "short"), {}),
        "context.forget": ((["m3"],), {}),
        "context.request_retention": ((), {"retain_contents": ["Do it."]}),
    }
    objects = {name: listed.pop(name) for name in ("context.pool", "context.queue")}
    for name, row in objects.items():
        assert type(getattr(manager, name.removeprefix("context."))).__name__ == row[1]
    for name, row in sorted(listed.items(), key=lambda item: item[0] == "context.interrupt"):
        capability = getattr(manager, name.removeprefix("context."))
        shown = re.findall(r"(\w+)(?:=[^,]*)?(?:, |\)`)", row[0].partition("(")[2])
        assert shown == list(inspect.signature(capability).parameters), name
        given, named = arguments.get(name, ((), {}))
        returned = capability(*given, **named)
        if inspect.isawaitable(returned):
            returned = await returned
        kinds: dict[str, Any] = {**PLAIN, "None": NONE, "Snapshot": Snapshot, "TokenCounter": Callable}
        assert isinstance(returned, tuple(kinds[kind] for kind in row[1].split(" or "))), f"{name}: {returned!r}"
        for key in re.findall(r"`(\w+)` \(", row[2]) if name == "context.interrupt" else ():
            assert key in returned
        for error in re.findall(r"`([A-Z]\w+)`", row[2].partition("raises ")[2]):
            assert hasattr(core_errors, error) or error in ("ValueError", "ContextLengthError"), error
    await manager.close()
