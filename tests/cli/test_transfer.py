"""The commands `import` and `export`: what other programs keep comes in whole, and sessions go out."""

import asyncio
import json
import os
import shlex
import stat
import tempfile
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_cli.transfer.atif import read_atif, write_atif
from amplifier_context_cli.transfer.claude_code import read_claude_code
from amplifier_context_cli.transfer.codex import read_codex
from amplifier_context_cli.transfer.conversation import UnknownFormat
from amplifier_context_core import ContextManager, Entry
from amplifier_context_core.messages.parsing import arguments_of, calls_of, result_text, results_of, text_of
from tests.cli.kept import Message, in_session, messages, run
from tests.messages import call, result, says, user, work
from tests.pages import between, read

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def imported(path: Path, text: str, *options: str, code: int | None = 0, at: str = "") -> str:
    path.write_text(text, encoding="utf-8")
    return run("import", str(path), *options, code=code, at=at).output


def exported(name: str, kind: str = "messages", at: str = "") -> list[Message]:
    """The lines of an export, each a value of JSON."""
    return [json.loads(line) for line in run("export", name, "--format", kind, at=at).output.splitlines()]


def claude_code(kind: str, content: Any, *, id: str | None = None, **more: Any) -> Message:
    message = {"role": kind, "content": content} | ({"id": id, "model": "claude"} if id else {})
    head = {"sessionId": "s", "uuid": "u", "timestamp": "2026-01-05T09:00:00.000Z"}
    return {**head, "type": kind, "message": message, **more}


SESSION = [
    {"type": "file-history-snapshot", "snapshot": {}},
    claude_code("user", "Caveat: the next lines are of a command.", isMeta=True),
    claude_code("user", "Fix the parser."),
    claude_code("assistant", [{"type": "text", "text": "I look at it."}], id="a1"),
    claude_code("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "p.py"}}], id="a1"),
    claude_code("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "def parse(): ..."}]),
    claude_code("user", "A side question.", isSidechain=True),
    claude_code("assistant", [{"type": "text", "text": "Done."}], id="a2"),
]


def as_lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def test_a_session_of_claude_code_comes_in_with_its_calls_and_results(url: str, tmp_path: Path) -> None:
    printed = imported(tmp_path / "0a1b.jsonl", as_lines(SESSION))
    for part in ("5 messages", "1 lines of side conversations", "1 lines of the type file-history-snapshot"):
        assert part in printed
    shown = messages("0a1b")
    assert said(shown)[1:] == [
        ("user", "Fix the parser.", [], []),
        ("assistant", "I look at it.", [("t1", "Read", {"path": "p.py"})], []),
        ("user", "def parse(): ...", [], [("t1", "def parse(): ...")]),
        ("assistant", "Done.", [], []),
    ]
    assert shown[0]["metadata"]["source"] == "hook", "a text of the program is no person's"
    assert "source" not in shown[1]["metadata"]
    assert shown[2]["metadata"]["model"] == "claude"


def test_every_command_of_the_readme_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user's path; each ends with an error if there is nothing to compact, or to take back."""
    block = between(read("README.md"), "steer")
    export, *commands = [line for line in block.split("\n") if line and not line.startswith("```")]
    name, _, value = export.removeprefix("export ").partition("=")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    Path("session.jsonl").write_text(as_lines(work(320, output=1_500)))
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "amplifier-context"
        run(*arguments)


def spoken(role: str, *parts: dict[str, str]) -> tuple[str, Message]:
    return "response_item", {"type": "message", "role": role, "content": [*parts]}


ROLLOUT = [
    ("turn_context", {"model": "gpt-5-codex", "cwd": "/w"}),
    spoken("user", {"type": "input_text", "text": "<environment_context>x</environment_context>"}),
    spoken("user", {"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "data:"}),
    ("event_msg", {"type": "user_message", "message": "Look."}),
    ("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "abc"}),
    spoken("assistant", {"type": "output_text", "text": "I look."}),
    ("response_item", {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"}),
    ("response_item", {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "c2"}),
    ("response_item", {"type": "function_call_output", "call_id": "c1", "output": '{"output": "a.py"}'}),
    ("response_item", {"type": "custom_tool_call_output", "call_id": "c2", "output": {"content": "Done"}}),
    ("compacted", {"message": "Summary"}),
    spoken("assistant", {"type": "output_text", "text": "Seen."}),
]
ROLLED = [{"type": kind, "payload": payload} for kind, payload in ROLLOUT]


def test_a_rollout_of_codex_comes_in_with_its_calls_and_results(url: str, tmp_path: Path) -> None:
    stamp = "2026-01-05T09:00:00.000Z"
    printed = imported(tmp_path / "rollout-2026.jsonl", as_lines([{"timestamp": stamp, **line} for line in ROLLED]))
    for lost in ("1 images", "1 texts of reasoning", "1 lines of the type event_msg", "1 lines of the type compacted"):
        assert f"left out: {lost}" in printed
    made = exported("rollout-2026")
    calls = [("c1", "shell", {"command": ["ls"]}), ("c2", "apply_patch", {"input": "*** Begin Patch"})]
    assert said(made) == [
        ("user", "<environment_context>x</environment_context>", [], []),
        ("user", "Look.", [], []),
        ("assistant", "I look.", calls, []),
        ("tool", "", [], [("c1", '{"output": "a.py"}')]),
        ("tool", "", [], [("c2", "Done")]),
        ("assistant", "Seen.", [], []),
    ]
    assert made[0]["metadata"]["source"] == "hook"
    assert (made[2]["metadata"]["model"], made[2]["metadata"]["timestamp"][:19]) == ("gpt-5-codex", stamp[:19])
    bare = [line["payload"] for line in ROLLED if line["type"] == "response_item"]  # as the earliest versions wrote it
    assert said(read_codex(bare).messages) == said(made)


TRAJECTORY = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be careful."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Look."}, {"type": "image"}]},
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "reasoning_content": "hm",
            "model_name": "m",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "a.py"}, {"content": "disk is full"}]},
            "metrics": {"prompt_tokens": 120, "completion_tokens": 5, "cached_tokens": 100, "cost_usd": 0.25},
        },
        {"step_id": 4, "source": "system", "message": "", "extra": {"context_management": {"type": "compaction"}}},
    ],
}


def test_a_trajectory_of_an_earlier_version_is_read_and_what_it_loses_is_listed(url: str, tmp_path: Path) -> None:
    printed = imported(tmp_path / "trajectory.json", json.dumps(TRAJECTORY), "--session", "run")
    for lost in ("1 images", "1 texts of reasoning", "1 steps about compactions of the other program"):
        assert f"left out: {lost}" in printed
    made = exported("run")
    assert [one["role"] for one in made] == ["system", "user", "assistant", "tool", "user"]
    usage = made[2]["metadata"]["usage"]
    assert (usage["input_tokens"], usage["cost_usd"]) == (120, "0.25")
    assert made[4]["metadata"]["source"] == "hook"
    number = {"source": "agent", "message": "", "tool_calls": [{"tool_call_id": 7, "function_name": "f"}]}
    number |= {"observation": {"results": [{"source_call_id": 7, "content": "out"}]}}
    note = {"source": "system", "message": "Note", "extra": {"context_management": {"type": "injection"}}}
    read = read_atif({"schema_version": "ATIF-v1.8", "steps": [number, note]}).messages
    assert (read[0]["tool_calls"][0]["id"], read[1]["tool_call_id"], read[2]["content"]) == ("7", "7", "Note")
    for value in ({"schema_version": "ATIF-v2.0", "steps": []}, [], "text"):
        with pytest.raises(UnknownFormat, match=r"ATIF-v1\."):
            read_atif(value)
    with pytest.raises(UnknownFormat, match="step 2"):
        read_atif({"schema_version": "ATIF-v1.8", "steps": [note, {"source": "robot"}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(["user", "compacted", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """A value, a part of which is replaced by any other."""
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    made, keys = copy(value), list(value) if isinstance(value, dict) else list(range(len(value)))
    place = draw(st.sampled_from(keys))
    made[place] = draw(damaged(made[place]))
    return made


def lines_of(whole: list[Message]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of([damaged(line) for line in whole]), max_size=5)


@given(lines_of(SESSION), lines_of(ROLLED), damaged(TRAJECTORY))
def test_damaged_files_are_read_and_what_is_left_out_can_be_printed(claude: Any, codex: Any, atif: Any) -> None:
    for reader, value in ((read_claude_code, claude), (read_codex, codex), (read_atif, atif)):
        with suppress(UnknownFormat):
            made = reader(value)
            assert all(isinstance(message["role"], str) for message in made.messages)
            assert all(what.isprintable() and len(what) < 80 for what in made.left_out)


def said(messages: list[Message]) -> list[Any]:
    """What messages say, whatever their shape."""
    return [
        (
            one["role"],
            "" if one["role"] == "tool" else text_of(one.get("content")),
            [(made.id, made.name, arguments_of(made)) for made in calls_of(one)],
            [(answered.call_id, result_text(answered.content)) for answered in results_of(one)],
        )
        for one in messages
    ]


STEPS = st.one_of(
    TEXTS.map(lambda text: [user(f"Do {text}")]),
    TEXTS.map(lambda text: [says(f"I did {text}")]),
    st.tuples(TEXTS, TEXTS).map(lambda both: [call("c", path=both[0]), result("c", f"out {both[1]}")]),
)


@given(st.lists(STEPS, min_size=1, max_size=8).map(lambda steps: [one for step in steps for one in step]))
def test_a_trajectory_that_is_written_and_read_says_the_same(messages: list[Message]) -> None:
    async def entries_of(manager: ContextManager) -> list[Entry]:
        for message in messages:
            await manager.add_message(message)
        return list(manager.snapshot())

    entries = in_session("memory:", entries_of)
    back = read_atif(json.loads(json.dumps(write_atif("s", entries, "1"))))
    assert said(back.messages) == said([entry.message for entry in entries])
    assert not back.left_out


@given(st.lists(STEPS, min_size=1, max_size=6).map(lambda steps: [one for step in steps for one in step]))
@settings(max_examples=settings().max_examples // 5)
def test_exported_messages_come_in_again_as_they_were(talk: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target, file = f"jsonl:{folder}/a", f"sqlite:{folder}/b.db", Path(folder) / "out.jsonl"
        imported(Path(folder) / "in.json", json.dumps({"messages": talk}), "--session", "s", at=source)
        run("export", "s", "--format", "messages", "-o", str(file), at=source)
        run("import", str(file), "--session", "s", at=target)
        assert run("export", "s", "--format", "messages", at=target).output == file.read_text(encoding="utf-8")


def test_compactions_are_system_steps_at_their_time_and_only_the_newest_has_chapters(url: str) -> None:
    places: list[int] = []  # messages before each compaction

    async def talk(manager: ContextManager) -> tuple[list[Message], list[str]]:
        for number in range(60):
            await manager.add_message(user(f"Question {number}. " + "words " * 60))
            await manager.get_messages_for_request()
            places.extend([2 * number + 1] * (len(await manager.compactions()) - len(places)))
            await asyncio.sleep(0.002)  # times are kept in milliseconds
            await manager.add_message(says(f"Answer {number}. " + "words " * 60))
        return await manager.compactions(), [one["text"] for one in await manager.chapters()]

    done, chapters = in_session(url, talk, max_tokens=3_000)
    (written,) = exported("one", "atif")
    made = [(at, one) for at, one in enumerate(written["steps"]) if "context_management" in one["extra"]]
    assert len(made) > 1
    assert [at - earlier for earlier, (at, _) in enumerate(made)] == places
    for (_, one), row in zip(made, done, strict=True):
        management = one["extra"]["context_management"]
        assert (one["source"], one["timestamp"]) == ("system", row["at"])
        assert (management["type"], management["boundary"]) == ("compaction", "replace")
        assert management["after_tokens"] == row["after_tokens"]
    assert ["observation" in one for _, one in made] == [False] * (len(made) - 1) + [True]
    assert [one["content"] for one in made[-1][1]["observation"]["results"]] == chapters
    back = read_atif(written)
    assert len(back.messages) == 120
    assert back.left_out == {"steps about compactions of the other program": len(made)}


def test_what_show_prints_as_json_and_a_request_with_its_system_prompt_come_in(filled: str, tmp_path: Path) -> None:
    imported(tmp_path / "shown.jsonl", as_lines(messages("two", "--last", "5")))
    assert [one["mark"] for one in messages("shown")] == ["m1", "m2", "m3", "m4", "m5"]
    assert exported("shown") == exported("two")[-5:]
    imported(tmp_path / "request.json", json.dumps({"system": "Be careful.", "messages": [user("Go on.")]}))
    first = exported("request")[0]
    assert (first["role"], first["content"]) == ("system", "Be careful.")


def test_markdown_has_each_message_and_no_text_can_end_its_block(url: str, tmp_path: Path) -> None:
    seen = user([{"type": "text", "text": "Look."}, {"type": "image", "source": {}}])
    talk = [*work(2), call("x"), result("x", "```\n# not a heading\n````"), seen]
    imported(tmp_path / "s.json", json.dumps(talk))
    printed = run("export", "s", "--format", "markdown", "-o", str(tmp_path / "s.md")).output
    assert "left out: 1 blocks of the type image\n" in printed
    page = (tmp_path / "s.md").read_text()
    assert page.count("\n## m") == 8
    assert "`````\n```\n# not a heading\n````\n`````" in page
    assert stat.S_IMODE((tmp_path / "s.md").stat().st_mode) == 0o600


def test_an_output_that_is_a_pipe_or_a_link_stays_one(url: str, tmp_path: Path) -> None:
    imported(tmp_path / "s.json", json.dumps(work(2)))
    pipe, link, file = (tmp_path / name for name in ("pipe", "link", "file.jsonl"))
    os.mkfifo(pipe)
    link.symlink_to(file)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for output in (pipe, link):
        run("export", "s", "--format", "messages", "-o", str(output))
    piped = os.read(reader, 1_000_000)
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert piped == file.read_bytes()
    assert piped.count(b"\n") == len(work(2))


def test_an_output_in_no_folder_is_an_error_that_names_it(url: str, tmp_path: Path) -> None:
    imported(tmp_path / "s.json", json.dumps(work(2)))
    output = tmp_path / "none" / "s.md"
    assert (
        f"{output}: No such file or directory"
        in run("export", "s", "--format", "markdown", "-o", str(output), code=1).output
    )


NAN = '[{"role": "user", "content": "x", "metadata": {"n": NaN}}]'


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "{}", "[1]", '{"role": "user"}\n{', "", NAN], ids=lambda text: text[:20]
)
def test_a_file_of_no_known_format_or_message_makes_no_session(url: str, tmp_path: Path, text: str) -> None:
    assert "Error: " in imported(tmp_path / "odd.json", text, code=None)
    run("show", "odd", code=1)


def test_a_message_that_cannot_be_stored_is_named_and_a_session_is_not_added_to(url: str, tmp_path: Path) -> None:
    text = json.dumps([user("a \ud800 b"), {"role": "wizard", "content": "?"}, says("Done.")])
    printed = imported(tmp_path / "in.json", text)
    assert "message 2 is left out: " in printed
    assert "2 messages" in printed
    before = messages("in")
    assert "--session" in imported(tmp_path / "in.json", text, code=None)
    assert messages("in") == before
    run("report", "in", "-o", str(tmp_path / "page.html"))
    for name in ("markdown", "messages", "atif"):
        run("export", "in", "--format", name, "-o", str(tmp_path / name))
