"""Recordings read and fed to a context, and real kernel sessions from a mount plan."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import (
    EventRecorder,
    FolderResolver,
    ListContext,
    Transcript,
    mount_plan,
    read_transcripts,
    replay,
    session,
)
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.fakes import mount_list

LINES = [
    {"id": "one", "source": "here", "messages": [{"role": "user", "content": "Hi."}], "meta": {"n": 1}},
    {"id": "two", "messages": []},
]


def write(path: Path, lines: list[Any]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["set.jsonl", "set.jsonl.gz"])
def test_a_transcript_per_line_is_read_packed_or_not(tmp_path: Path, name: str) -> None:
    found = list(read_transcripts(write(tmp_path / name, LINES)))
    assert [transcript.id for transcript in found] == ["one", "two"]
    assert found[0].messages == [{"role": "user", "content": "Hi."}]
    assert (found[0].source, found[0].meta, found[0].path) == ("here", {"n": 1}, tmp_path / name)


def test_a_message_per_line_is_one_transcript_named_after_its_file(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    (found,) = read_transcripts(write(tmp_path / "transcript.jsonl", messages))
    assert (found.id, found.messages) == ("transcript", messages)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": ', "line 1: not JSON"),
        ("[1]", "line 1: not an object"),
        ('{"x": 1}', "neither a transcript"),
        ('{"messages": "x"}', "is not a list of objects"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=reason):
        list(read_transcripts(file))


async def test_a_view_is_asked_for_before_every_assistant_message() -> None:
    talk = ConversationBuilder("kernel").system("S.").user("Go.").work(2, "views").say("Done.")
    asked: list[tuple[int, int]] = []
    await replay(
        Transcript("t", "s", talk.messages), ListContext(), lambda index, view: asked.append((index, len(view)))
    )
    assistants = [place for place, message in enumerate(talk.messages) if message["role"] == "assistant"]
    assert asked == [(place, place) for place in assistants]


LIST = {"context-list": mount_list}


@pytest.mark.kernel
async def test_a_session_answers_from_its_script() -> None:
    recorder = EventRecorder()
    async with session(mount_plan("context-list", script=["Hello."]), modules=LIST, recorder=recorder) as running:
        assert await running.execute("Hi.") == "Hello."
        assert len(running.coordinator.get("context").messages) == 2
    assert recorder.names()[0] == "session:start"
    assert recorder.names()[-1] == "session:end"


@pytest.mark.kernel
async def test_a_tool_that_fails_to_load_is_named_not_passed_over() -> None:
    plan = mount_plan("context-list", script=["Hello."], tools={"tool-folder": {"path": "/no/such/folder"}})
    with pytest.raises(RuntimeError, match=r"module tool-folder: .*is not a folder"):
        async with session(plan, modules=LIST):
            pass
    async with session(plan, modules=LIST, strict=False) as running:
        assert await running.execute("Hi.") == "Hello."


@pytest.mark.kernel
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
