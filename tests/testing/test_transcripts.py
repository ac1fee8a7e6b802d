"""Recordings read and fed to a context, and real kernel sessions from a mount plan."""

import gzip
import json
from pathlib import Path

import pytest

from amplifier_context_testing import EventRecorder, mount_plan, read_transcripts, session
from amplifier_context_testing.fakes import mount_list
from tests.messages import says, user


def test_a_transcript_per_line_is_read_packed_or_not_and_a_message_per_line_is_one_transcript(tmp_path: Path) -> None:
    lines = [{"id": "one", "source": "here", "messages": [user()], "meta": {"n": 1}}, {"id": "two", "messages": []}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for path, data in ((tmp_path / "a.jsonl", text.encode()), (tmp_path / "a.jsonl.gz", gzip.compress(text.encode()))):
        path.write_bytes(data)
        one, two = read_transcripts(path)
        assert (one.id, one.messages, one.source, one.meta, one.path) == ("one", [user()], "here", {"n": 1}, path)
        assert two.id == "two"
    (tmp_path / "talk.jsonl").write_text(json.dumps(user()) + "\n" + json.dumps(says()) + "\n")
    (found,) = read_transcripts(tmp_path / "talk.jsonl")
    assert (found.id, found.messages) == ("talk", [user(), says()])


@pytest.mark.kernel
async def test_a_session_answers_from_its_script_and_a_tool_that_fails_to_load_is_named() -> None:
    recorder, modules = EventRecorder(), {"context-list": mount_list}
    plan = mount_plan("context-list", script=["Hello."], tools={"tool-folder": {"path": "/no/such/folder"}})
    with pytest.raises(RuntimeError, match=r"module tool-folder: .*is not a folder"):
        async with session(plan, modules=modules):
            pass
    async with session(plan, modules=modules, recorder=recorder, strict=False) as running:
        assert await running.execute("Hi.") == "Hello."
        assert len(running.coordinator.get("context").messages) == 2
    assert recorder.names()[:2] == ["module:load_failed", "session:start"]
    assert recorder.names()[-1] == "session:end"
