"""The scripted agent: it really looks, it comes back, and any folder will do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import EventRecorder, ListContext, mount_plan, session
from amplifier_context_testing.demo.scripted_agent import explore_script
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


async def test_every_search_is_for_a_name_it_has_read(project: Path) -> None:
    _, made, context = await explore(project)
    shown = "\n".join(str(message["content"]) for message in context.messages if message["role"] == "tool")
    searched = [text for tool, text in made if tool == "search_files"]
    assert len(searched) >= 8
    assert all(shown.count(text) >= 2 for text in searched)


async def test_it_goes_back_to_what_it_saw_first(project: Path) -> None:
    _, made, _ = await explore(project)
    read = [path for tool, path in made if tool == "read_file"]
    again = [path for path in read if read.count(path) > 1]
    assert read[0] in again
    late = [text for tool, text in made[len(made) // 2 :] if tool == "search_files"]
    first_number = read[0].split("_")[-1].removesuffix(".py")
    assert any(text.startswith(f"compute_{first_number}_") for text in late)


async def test_some_answers_make_several_calls(project: Path) -> None:
    _, _, context = await explore(project)
    counts = {len(message["tool_calls"]) for message in context.messages if message.get("tool_calls")}
    assert {1, 2, 3} <= counts


async def test_the_same_folder_is_explored_the_same_way(project: Path) -> None:
    assert (await explore(project, 25))[1] == (await explore(project, 25))[1]


async def test_it_takes_no_more_steps_than_it_is_given(project: Path) -> None:
    _, made, context = await explore(project, steps=7)
    assert sum(1 for message in context.messages if message.get("tool_calls")) == 7
    assert len(made) >= 7


async def test_a_second_prompt_looks_on(project: Path) -> None:
    answers, made, _ = await explore(project, steps=10, prompts=2)
    assert answers[0] != answers[1]
    assert len({path for tool, path in made if tool == "read_file"}) > 10


async def test_an_empty_folder_is_reported_as_such(tmp_path: Path) -> None:
    (report,), made, _ = await explore(tmp_path)
    assert report == "I listed 1 folders and found no text to read."
    assert made == [("list_folder", ".")]


async def test_a_folder_of_huge_and_binary_files_is_survived(tmp_path: Path) -> None:
    (tmp_path / "huge.txt").write_text("needle_in_here " * 400_000)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "wrong.txt").write_bytes(b"\x00" * 100)
    (tmp_path / "empty.txt").touch()
    (report,), made, _ = await explore(tmp_path)
    assert ("read_file", "huge.txt") in made
    assert "read" in report


async def test_a_small_folder_is_done_before_the_steps_are(tmp_path: Path) -> None:
    (tmp_path / "only.py").write_text("def lonely_function(): ...\n")
    _, made, _ = await explore(tmp_path)
    assert len(made) < 10


async def test_hidden_and_generated_folders_are_left_alone(project: Path) -> None:
    _, made, _ = await explore(project)
    assert not any(".git" in str(path) for _, path in made)


@pytest.mark.parametrize("steps", [0, -1, "many", True])
def test_steps_that_cannot_be_are_refused(steps: Any) -> None:
    with pytest.raises(ValueError, match="explore_script: steps"):
        explore_script({"steps": steps})


async def test_it_recalls_what_a_record_names_where_the_tool_is_mounted(project: Path) -> None:
    plan = mount_plan(
        {"module": "context-simple", "config": {"max_tokens": 8_000, "token_counter": "heuristic"}},
        script="amplifier_context_testing.demo.scripted_agent:explore_script",
        window=10_000,
        provider={"steps": 40, "check": True},
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
