"""Real kernel sessions from a mount plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_context_testing import EventRecorder, FolderResolver, mount_plan, session
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
