"""Real kernel sessions from a mount plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_context_testing import EventRecorder, FolderResolver, Transcript, mount_plan, prepare, session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.fakes import mount_list

pytestmark = pytest.mark.kernel

LIST = {"context-list": mount_list}


async def test_a_session_answers_from_its_script() -> None:
    recorder = EventRecorder()
    async with session(mount_plan("context-list", script=["Hello."]), modules=LIST, recorder=recorder) as running:
        assert await running.execute("Hi.") == "Hello."
        assert len(running.coordinator.get("context").messages) == 2
    assert recorder.names()[0] == "session:start"
    assert recorder.names()[-1] == "session:end"


async def test_a_tool_that_fails_to_load_is_named_not_passed_over() -> None:
    plan = mount_plan("context-list", script=["Hello."], tools={"tool-folder": {"path": "/no/such/folder"}})
    with pytest.raises(RuntimeError, match=r"module tool-folder: .*is not a folder"):
        async with session(plan, modules=LIST):
            pass
    async with session(plan, modules=LIST, strict=False) as running:
        assert await running.execute("Hi.") == "Hello."


def test_a_source_elsewhere_is_left_to_others(tmp_path: Path) -> None:
    from amplifier_core.module_sources import ModuleNotFoundError as SourceNotFoundError

    resolver = FolderResolver({"a": tmp_path})
    assert resolver.resolve("a").resolve() == tmp_path.resolve()
    assert resolver.resolve("b", str(tmp_path)).resolve() == tmp_path.resolve()
    with pytest.raises(SourceNotFoundError):
        resolver.resolve("b")
    with pytest.raises(SourceNotFoundError):
        resolver.resolve("a", "git+https://example.com/a")
    with pytest.raises(FileNotFoundError):
        resolver.resolve("b", tmp_path / "none")


@pytest.mark.parametrize("style", ["basic", "streaming"])
async def test_a_recording_becomes_the_session_it_was(style: str) -> None:
    talk = ConversationBuilder("kernel").system("You are careful.").user("Go.").work(4, "again").say("Done.")
    talk.user("More.").work(2, "more").say("All done.")
    prepared = prepare(Transcript("t", "s", talk.messages), check=True)
    plan = prepared.plan("context-list", window=1_000_000)
    plan["session"]["orchestrator"]["config"] = {"style": style}
    async with session(plan, modules=LIST) as running:
        assert await prepared.run(running) == ["Done.", "All done."]
        stored = running.coordinator.get("context").messages
        assert running.coordinator.get("providers")["replay"].violations == []
    assert [message["role"] for message in stored] == [message["role"] for message in talk.messages]
    results = [message["content"] for message in stored if message["role"] == "tool"]
    assert results == [message["content"] for message in talk.messages if message["role"] == "tool"]
