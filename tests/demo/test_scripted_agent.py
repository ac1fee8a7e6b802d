"""The scripted agent: it really looks, it comes back, and any folder will do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amplifier_context_testing import EventRecorder, ListContext, mount_plan, session
from amplifier_context_testing.fakes import mount_list

pytestmark = pytest.mark.kernel


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for number in range(30):
        file = tmp_path / f"part_{number % 5}" / f"module_{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"def compute_{number}_{line}(value_{line}): ...\n" for line in range(40)))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    return tmp_path


async def explore(
    path: Path, steps: int = 60, prompts: int = 1
) -> tuple[list[str], list[tuple[str, str]], ListContext]:
    """The answers, the calls made as (tool, object), and the context."""
    plan = mount_plan(
        "context-list",
        script="amplifier_context_testing.demo.scripted_agent:explore_script",
        window=10_000_000,
        provider={"steps": steps, "check": True},
        tools={"tool-folder": {"path": str(path)}},
    )
    recorder = EventRecorder()
    async with session(plan, modules={"context-list": mount_list}, recorder=recorder) as running:
        answers = [await running.execute("Explore this folder.") for _ in range(prompts)]
        assert running.coordinator.get("providers")["replay"].violations == []
        context = running.coordinator.get("context")
    calls = [call for message in context.messages for call in message.get("tool_calls", ())]
    made = [(call["tool"], call["arguments"].get("path") or call["arguments"]["text"]) for call in calls]
    assert recorder.count("tool:error") == 0
    return answers, made, context


async def test_it_lists_reads_searches_and_reports(project: Path) -> None:
    (report,), made, _ = await explore(project)
    assert {tool for tool, _ in made} == {"list_folder", "read_file", "search_files"}
    assert made[0] == ("list_folder", ".")
    assert re.match(r"I listed 6 folders, read 30 files and searched for \d+ names\.", report)


async def test_the_same_folder_is_explored_the_same_way(project: Path) -> None:
    assert (await explore(project, 25))[1] == (await explore(project, 25))[1]


async def test_an_empty_folder_is_reported_as_such(tmp_path: Path) -> None:
    (report,), made, _ = await explore(tmp_path)
    assert report == "I listed 1 folders and found no text to read."
    assert made == [("list_folder", ".")]


async def test_it_recalls_what_a_record_names_where_the_tool_is_mounted(project: Path) -> None:
    plan = mount_plan(
        {"module": "context-simple", "config": {"max_tokens": 8_000, "token_counter": "heuristic"}},
        script="amplifier_context_testing.demo.scripted_agent:explore_script",
        window=10_000,
        provider={"steps": 90, "check": True},
        tools={"tool-folder": {"path": str(project)}, "tool-context-recall": {}},
    )
    async with session(plan) as running:
        await running.execute("Look around.")
        messages = await running.coordinator.get("context").get_messages()
        assert running.coordinator.get("providers")["replay"].violations == []
    calls = {call["id"]: call for message in messages for call in message.get("tool_calls") or ()}
    recalls = [call for call in calls.values() if call["tool"] == "context_recall"]
    assert recalls
    for call in recalls:
        first = int(call["arguments"]["mark"].split("-")[0][1:])
        (read, *_) = messages[first - 1]["tool_calls"]
        answer = next(message for message in messages if message.get("tool_call_id") == call["id"])
        original = next(message for message in messages if message.get("tool_call_id") == read["id"])
        assert original["content"].splitlines()[0] in answer["content"]
