"""Reading recordings, and feeding them to a context."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import ListContext, Transcript, read_transcripts, replay
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder

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
