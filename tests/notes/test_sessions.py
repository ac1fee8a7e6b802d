"""Notes in sessions of the kernel: an agent keeps one, fresh sessions of the project begin with it, others do not."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager
from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import open_store
from amplifier_context_persistent import mount
from amplifier_context_recall.notes import Notes, notes_id
from amplifier_context_recall.recall_tool import NO_NOTES
from amplifier_context_testing import mount_plan, session
from tests.places import Place

pytestmark = pytest.mark.kernel
NOTE = "The integration tests need PostgreSQL on port 5433."


async def talk(
    place: Place, name: str, *calls: dict[str, Any], config: dict[str, Any] | None = None, **context: Any
) -> tuple[list[str], list[str]]:
    """Let a scripted agent make calls of the tool; return the contents of the first request, and the tool's results."""
    kept = {"module": "context-persistent", "config": {"store": place.url(), "durability": "none", "notes": True}}
    kept["config"] |= context
    script = [*({"calls": [{"tool": "context_recall", "arguments": call}]} for call in calls), "Done."]
    tools = {"tool-context-recall": {"allow": ["notes"]} if config is None else config}
    plan = mount_plan(kept, script=script, provider={"check": True}, tools=tools)
    async with session(plan, session_id=place.session_id(name)) as running:
        assert await running.execute("Go.") == "Done."
        provider = next(iter(running.coordinator.get("providers").values()))
        assert provider.violations == []
        messages = await running.coordinator.get("context").get_messages()
        results = [str(message["content"]) for message in messages if message["role"] == "tool"]
        return [str(message["content"]) for message in messages if message["role"] == "system"], results


@pytest.fixture(autouse=True)
def project(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own: its path is in the id of the notes."""
    folder = tmp_path / place.session_id("project")
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


async def test_a_note_of_an_agent_begins_the_next_fresh_session_and_no_resumed_one(place: Place) -> None:
    calls = [{"operation": "notes", "note": note} for note in (NOTE, "x" * 1_001, 5)]
    system, results = await talk(place, "first", *calls, {"operation": "notes"})
    assert system == []
    assert results[0] == "n1 is kept for later sessions of this project"
    assert all(text.startswith("context_recall: note: ") for text in results[1:3]), "why they cannot be kept"
    assert f"agent, session {place.session_id('first')}): {NOTE}" in results[3]
    (shown,), _ = await talk(place, "second")
    assert shown.startswith("<quoted_output>\n[notes of this project, kept by earlier sessions; quoted")
    assert NOTE in shown
    assert (await talk(place, "first"))[0] == [], "a resumed one"
    assert (await talk(place, "third", notes_tokens=5))[0] == []


async def test_notes_are_off_by_default_for_the_context_and_for_the_tool(place: Place) -> None:
    await Notes(place.store, notes_id()).add(NOTE, "person")
    system, results = await talk(place, "off", {"operation": "notes", "note": "x"}, notes=False)
    assert (system, results) == ([], [NO_NOTES])
    _, results = await talk(place, "not-allowed", {"operation": "notes", "note": "x"}, config={})
    assert results[0].startswith("operation must be one of read, search, list, not 'notes'")
    assert [note.text for note in await Notes(place.store, notes_id()).all()] == [NOTE]


async def test_memory_files_come_before_notes_and_a_store_that_cannot_be_read_stops_no_session(
    place: Place, project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "memory.md").write_text("Use tabs.")
    await Notes(place.store, notes_id()).add(NOTE, "person")
    system, _ = await talk(place, "first", memory_files=["memory.md"])
    assert [text[:22] for text in system] == ["[Context from memory.m", "<quoted_output>\n[notes"]

    async def failing(self: Notes) -> Any:
        raise StoreError("the disk is on fire")

    monkeypatch.setattr(Notes, "all", failing)
    with caplog.at_level(logging.ERROR):
        system, _ = await talk(place, "second", memory_files=["memory.md"])
    assert system == ["[Context from memory.md]\n\nUse tabs."]
    assert "the notes of the project are left out: the disk is on fire" in caplog.text


async def test_forgetting_a_text_in_all_sessions_reaches_notes_and_they_begin_no_session(place: Place) -> None:
    """The notes are a session of the store, so `forget` and `verify` treat them as one."""
    notes = Notes(place.store, notes_id())
    await notes.add(NOTE, "agent")
    manager = ContextManager(session_id=notes_id(), store=place.store())
    assert await manager.forget(containing="port 5433") == ["m1"]
    await manager.close()
    assert await notes.all() == []
    system, results = await talk(place, "second", {"operation": "notes"})
    assert (system, results) == ([], ["the project has no notes"])


async def test_a_session_without_the_package_says_so_in_one_line_and_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "amplifier_context_recall.notes", None)
    assert await talk(place, "first", {"operation": "notes", "note": NOTE}) == ([], [NO_NOTES])
    (line,) = (one for one in caplog.messages if "notes are neither kept nor shown" in one)
    assert line.endswith("install 'amplifier-context-persistent[notes]'")


async def test_notes_in_memory_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^notes: need a store that outlives the process"):
        await mount(MockCoordinator(), {"notes": True, "store": "memory:"})


@pytest.mark.parametrize("place", ["jsonl"], indirect=True)
async def test_a_session_that_is_a_file_of_its_own_has_its_notes_beside_the_others(
    place: Place, tmp_path: Path
) -> None:
    files = {"store": None, "storage_path": str(tmp_path / "kept")}
    await talk(
        place, "first", {"operation": "notes", "note": NOTE}, **files, transcript_path=str(tmp_path / "mine.jsonl")
    )
    kept = await Notes(lambda: open_store(f"jsonl:{tmp_path / 'kept'}"), notes_id()).all()
    assert [note.text for note in kept] == [NOTE]
