"""Sessions that last, through the kernel: a second one of the same id goes on where the first one ended."""

import hashlib
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

import amplifier_context_persistent
import amplifier_context_summary
from amplifier_context_core import ConfigError, ContextManager
from amplifier_context_core.messages.parsing import text_of
from amplifier_context_testing import EventRecorder, mount_plan, session
from tests.kernel.hosted import CURRENT, process, view_of, worked
from tests.managers import feed
from tests.messages import result, says, system, user

pytestmark = pytest.mark.kernel
MODULES = ("persistent",)


async def mount(config: dict[str, Any] | None = None) -> tuple[ContextManager, Any]:
    coordinator = MockCoordinator()
    cleanup = await amplifier_context_persistent.mount(coordinator, config)
    return coordinator.get("context"), cleanup


async def contents(manager: ContextManager) -> list[Any]:
    return [message["content"] for message in await manager.get_messages()]


async def test_a_second_session_goes_on_with_the_first_ones_history() -> None:
    for turn in range(3):
        async with session(mount_plan(CURRENT.module, script=[f"Answer {turn}."]), session_id="lasting") as running:
            manager = running.coordinator.get("context")
            assert len(await manager.get_messages()) == 2 * turn
            await running.execute(f"Question {turn}.")
            assert manager.turn_count == turn + 1
            texts = [text_of(content) for content in await contents(manager)]
    assert texts == [text for n in range(3) for text in (f"Question {n}.", f"Answer {n}.")]


@pytest.mark.parametrize("known", ["it was", "it is new", "it never was", "the host restores it"])
async def test_the_resume_of_a_session_that_never_was_is_reported_once_and_no_other(
    known: str, caplog: pytest.LogCaptureFixture
) -> None:
    module = "context-simple" if known == "the host restores it" else CURRENT.module
    plan = mount_plan(module, script=["Hello."] * 3)
    if known == "it was":
        async with session(plan, session_id="s") as running:
            await running.execute("Hi.")
    async with session(plan, session_id="s", is_resumed=known != "it is new") as running:
        recorder = EventRecorder(running.coordinator, ["context:warning"])
        if known == "the host restores it":
            await running.coordinator.get("context").set_messages([user("Hi.")])
        await running.execute("Hi.")
        await running.execute("Are you there?")
    reasons = [warning["reason"] for warning in recorder.named("context:warning")]
    assert reasons == (["resume"] if known == "it never was" else [])
    named = "session s: its host resumes it, but no history of this id was found" in caplog.text
    assert named is (known == "it never was")


async def test_by_default_it_is_kept_where_the_module_we_replace_keeps_it(home: Path, tmp_path: Path) -> None:
    for config, folder in (({}, None), ({"storage_path": "~/kept/{project}"}, str(tmp_path / "my: work"))):
        coordinator = MockCoordinator()
        if folder:
            coordinator.register_capability("session.working_dir", folder)
        cleanup = await amplifier_context_persistent.mount(coordinator, config)
        await coordinator.get("context").add_message(user("hello"))
        await cleanup()
    slug = str(tmp_path / "my work").replace("/", "-")
    assert (home / "kept" / slug / "test-session" / "context-messages.jsonl").is_file()
    here = Path.cwd().resolve()  # the project, where the host names no folder
    digest = hashlib.sha256(str(here).encode()).hexdigest()[:8]
    file = home / f".amplifier/projects/{here.name}-{digest}/sessions/test-session/context-messages.jsonl"
    (message,) = map(json.loads, file.read_text().splitlines())
    assert (message["role"], message["content"]) == ("user", "hello")
    assert message["timestamp"] == message["metadata"]["timestamp"]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_file_of_the_module_we_replace_is_resumed(tmp_path: Path) -> None:
    """Its line format: one message a line, a timestamp at the top, written by Python's json."""
    file = tmp_path / "theirs" / "context-messages.jsonl"
    file.parent.mkdir()
    call = says(None, tool_calls=[{"id": "c1", "tool": "look", "arguments": {"at": "x"}}])
    talk = [system("Be kind."), user("Grüße, 世界"), call, result("c1", "nothing"), says("done")]
    messages = [one | {"timestamp": f"2026-01-01T10:00:0{number}.000+00:00"} for number, one in enumerate(talk)]
    file.write_text("".join(json.dumps(message) + "\n" for message in messages))
    manager, cleanup = await mount({"transcript_path": str(file)})
    assert await manager.get_messages() == messages
    assert all(entry.tokens > 0 for entry in manager.snapshot()), "they were stored without a count"
    await manager.add_message({"role": "user", "content": "more"})
    await cleanup()
    *first, last = [json.loads(line) for line in file.read_text().splitlines()]
    assert (first, last["content"]) == (messages, "more")  # theirs reads it on


async def test_memory_files_begin_a_fresh_session_and_no_resumed_one(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("Use tabs.")
    config = {"memory_files": str(notes), "storage_path": str(tmp_path / "kept")}  # one needs no list
    manager, cleanup = await mount(config)
    await manager.add_message(user("hi"))
    assert (await manager.get_messages())[0]["role"] == "system"
    await cleanup()
    notes.write_text("Use spaces.")
    manager, cleanup = await mount(config)
    assert await contents(manager) == ["[Context from notes.md]\n\nUse tabs.", "hi"]
    await cleanup()


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n", b"text\0text", None], ids=["PNG", "NUL", "missing"])
async def test_a_memory_file_that_cannot_be_read_is_named_in_the_log_and_left_out(
    tmp_path: Path, data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = [tmp_path / "picture.png", tmp_path / "notes.md"]
    files[1].write_text("Use tabs.")
    if data is not None:
        files[0].write_bytes(data)
    manager, _ = await mount({"memory_files": [*map(str, files)], "store": "memory:"})
    assert await contents(manager) == ["[Context from notes.md]\n\nUse tabs."]
    (logged,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert logged.levelno == (logging.WARNING if data is None else logging.ERROR)
    assert "picture.png" in logged.getMessage()


@pytest.mark.parametrize(
    ("windows", "max_tokens", "limit"),
    [
        ([50_000, 9_000, None], None, r"the context window of 9,000 of provider p1, which leaves 7,\d\d\d"),
        ([50_000, 9_000], 1_000, r"the budget of 1,000 \(`max_tokens`\)"),
        ([None], None, r"the budget of 200,000 \(`max_tokens`\)"),
    ],
)
async def test_memory_files_too_large_for_the_smallest_known_window_are_an_error_and_nothing_is_stored(
    tmp_path: Path, windows: list[int | None], max_tokens: int | None, limit: str
) -> None:
    files = [tmp_path / "one.md", tmp_path / "two.md"]
    for file in files:
        file.write_text("word " * 105_000)
    config: dict[str, Any] = {"memory_files": [*map(str, files)], "store": "memory:"}
    coordinator = MockCoordinator()
    await amplifier_context_persistent.mount(coordinator, config | ({"max_tokens": max_tokens} if max_tokens else {}))
    for number, window in enumerate(windows):
        info = SimpleNamespace(defaults={"context_window": window} if window else {})
        provider = SimpleNamespace(name=f"p{number}", get_info=lambda info=info: info)
        await coordinator.mount("providers", provider, name=provider.name)
    manager = coordinator.get("context")
    for _ in range(2):  # it does not go on without them in silence
        with pytest.raises(ConfigError, match=rf"memory_files: 2\d\d,\d+ tokens .*{limit}.*one\.md 1.*two\.md 1"):
            await manager.add_message(user("hi"))
    assert await manager.store.sessions() == []


@pytest.mark.parametrize("key", ["storage_path", "transcript_path"])
async def test_a_path_beside_store_is_a_warning_that_names_both_and_an_empty_one_an_error(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await mount({"store": "memory:", key: str(tmp_path / "never")})
    assert f"context-persistent: {key} is ignored because store is set" in caplog.text
    with pytest.raises(ConfigError, match=rf"^{key}: ' ' is impossible: .*leave the key out for the default"):
        await mount({key: " "})  # not the current folder


async def test_a_hosts_record_changes_nothing_where_the_store_has_the_checkpoint(tmp_path: Path) -> None:
    async with process(tmp_path) as (host, context):
        last = await worked(host, context)
    async with process(tmp_path) as (host, context):
        assert await view_of(context) == last
        assert host.status["status"] == "current"
        assert json.loads(host.record.read_text())["sourceRevision"]["messages"] > 0


@pytest.mark.parametrize("module", [amplifier_context_persistent, amplifier_context_summary])
async def test_a_session_without_an_id_is_kept_under_no_other_name(module: Any) -> None:
    coordinator: Any = type("Coordinator", (MockCoordinator,), {"session_id": ""})()
    with pytest.raises(ConfigError, match=r"^session_id: must be text of at least one character; without one, "):
        await module.mount(coordinator, {"store": "memory:"})


async def test_a_store_is_opened_as_the_config_says(tmp_path: Path) -> None:
    for config in ({"transcript_path": str(tmp_path / "s.jsonl")}, {"store": f"sqlite:{tmp_path / 's.db'}"}):
        manager, cleanup = await mount({"durability": "none", "archive": False, **config})
        await feed(manager, [user("a"), user("b")])
        await manager.set_messages([user("a")])
        assert await manager.store.archived(manager.session_id) == []
        await cleanup()
