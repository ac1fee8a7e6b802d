"""The commands `import` and `export`: what other programs keep comes in whole, and sessions go out."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_cli.app import main
from amplifier_context_cli.transfer.atif import read_atif, write_atif
from amplifier_context_cli.transfer.claude_code import read_claude_code
from amplifier_context_cli.transfer.codex import read_codex
from amplifier_context_cli.transfer.conversation import UnknownFormat
from amplifier_context_core import ContextManager, Entry, load_config, open_store
from amplifier_context_core.messages.parsing import arguments_of, calls_of, result_text, results_of, text_of
from tests.messages import call, result, says, user, work

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def run(*arguments: str, fails: bool = False) -> str:
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code != 0) is fails, done.output
    return done.output


def claude_code(kind: str, content: Any, *, id: str | None = None, **more: Any) -> dict[str, Any]:
    """A line of a session of Claude Code."""
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


def test_a_session_of_claude_code_comes_in_with_its_calls_and_results(url: str, tmp_path: Path) -> None:
    file = tmp_path / "0a1b.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in SESSION))
    printed = run("import", str(file), "--store", url)
    assert "0a1b in" in printed
    assert "5 messages" in printed
    assert "left out: 1 lines of side conversations" in printed
    assert "left out: 1 lines of the type file-history-snapshot" in printed
    shown = [json.loads(line) for line in run("show", "0a1b", "--json", "--store", url).splitlines()]
    assert [one["role"] for one in shown] == ["user", "user", "assistant", "user", "assistant"]
    (made,) = calls_of(shown[2])
    (answered,) = results_of(shown[3])
    assert (made.id, made.name, answered.call_id) == ("t1", "Read", "t1")
    assert "report" in printed


def test_blocks_of_one_answer_become_one_message_and_a_text_of_the_program_is_no_persons() -> None:
    messages = read_claude_code(SESSION).messages
    assert [block["type"] for block in messages[2]["content"]] == ["text", "tool_use"]
    assert messages[0]["metadata"]["source"] == "hook"
    assert "source" not in messages[1]["metadata"]
    assert messages[2]["metadata"]["model"] == "claude"


def spoken(role: str, *parts: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return "response_item", {"type": "message", "role": role, "content": [*parts]}


ROLLOUT = [
    ("session_meta", {"id": "s", "cwd": "/w", "cli_version": "0.65.0"}),
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


def test_a_rollout_of_codex_comes_in_with_its_calls_and_results(url: str, tmp_path: Path) -> None:
    file = tmp_path / "rollout-2026.jsonl"
    stamp = "2026-01-05T09:00:00.000Z"
    lines = [{"timestamp": stamp, "type": kind, "payload": payload} for kind, payload in ROLLOUT]
    file.write_text("\n".join(map(json.dumps, lines)))
    printed = run("import", str(file), "--store", url)
    for lost in ("1 images", "1 texts of reasoning", "1 lines of the type event_msg", "1 lines of the type compacted"):
        assert f"left out: {lost}" in printed
    exported = run("export", "rollout-2026", "--format", "messages", "--store", url)
    messages = [json.loads(line) for line in exported.splitlines()]
    assert said(messages) == [
        ("user", "<environment_context>x</environment_context>", [], []),
        ("user", "Look.", [], []),
        (
            "assistant",
            "I look.",
            [("c1", "shell", {"command": ["ls"]}), ("c2", "apply_patch", {"input": "*** Begin Patch"})],
            [],
        ),
        ("tool", "", [], [("c1", '{"output": "a.py"}')]),
        ("tool", "", [], [("c2", "Done")]),
        ("assistant", "Seen.", [], []),
    ]
    assert messages[0]["metadata"]["source"] == "hook"
    assert (messages[2]["metadata"]["model"], messages[2]["metadata"]["timestamp"][:19]) == ("gpt-5-codex", stamp[:19])
    bare = [payload for kind, payload in ROLLOUT if kind == "response_item"]  # as the earliest versions wrote it
    assert said(read_codex(bare).messages) == said(messages)


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
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps(TRAJECTORY))
    printed = run("import", str(file), "--store", url, "--session", "run")
    for lost in ("1 images", "1 texts of reasoning", "1 steps about compactions of the other program"):
        assert f"left out: {lost}" in printed
    messages = [json.loads(line) for line in run("export", "run", "--format", "messages", "--store", url).splitlines()]
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool", "user"]
    assert messages[2]["metadata"]["usage"]["input_tokens"] == 120
    assert messages[2]["metadata"]["usage"]["cost_usd"] == "0.25"
    assert messages[4]["metadata"]["source"] == "hook"


def test_what_is_no_trajectory_of_version_1_is_refused_and_a_step_of_an_unknown_source_named() -> None:
    for value in ({"schema_version": "ATIF-v2.0", "steps": []}, {"steps": []}, [], "text"):
        with pytest.raises(UnknownFormat, match=r"ATIF-v1\."):
            read_atif(value)
    with pytest.raises(UnknownFormat, match="step 2"):
        read_atif({**TRAJECTORY, "steps": [TRAJECTORY["steps"][0], {"source": "robot"}]})  # type: ignore[index]


NAMES = ("type", "payload", "role", "content", "text", "call_id", "output", "message", "steps", "extra")
KINDS = ("response_item", "compacted", "reasoning", "message", "tool", "user", "assistant", "function_call", "text")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)


def objects(*names: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with these values, and some of these keys with values of any kind."""
    return st.fixed_dictionaries(values, optional=dict.fromkeys(names, JSON))


def lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner | JSON, max_size=3) | JSON


RUN = objects(
    *("message", "timestamp", "model_name", "reasoning_content", "extra"),
    source=st.sampled_from(["system", "user", "agent"]),
    tool_calls=lists(objects("function_name", "arguments", tool_call_id=JSON)),
    metrics=objects("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd") | JSON,
    observation=objects(results=lists(objects("content", source_call_id=JSON))) | JSON,
)
LINES = objects(
    *("timestamp", "isMeta", "isSidechain", "payload"),
    type=st.sampled_from(KINDS) | JSON,
    message=objects("model", "usage", id=st.just("a") | JSON, content=lists(JSON)) | JSON,
)


@given(st.lists(LINES | JSON, max_size=5), st.lists(RUN, max_size=3))
def test_files_of_any_values_are_read_and_what_is_left_out_can_be_printed(lines: list[Any], steps: list[Any]) -> None:
    for read in (read_codex, read_claude_code):
        made = read(lines)
        assert all(isinstance(message["role"], str) for message in made.messages)
        assert all(what.isprintable() and len(what) < 80 for what in made.left_out)
    read_atif({"schema_version": "ATIF-v1.7", "steps": steps})


def test_a_result_finds_a_call_whose_id_is_a_number() -> None:
    step = {"source": "agent", "message": "", "tool_calls": [{"tool_call_id": 7, "function_name": "f"}]}
    step |= {"observation": {"results": [{"source_call_id": 7, "content": "out"}]}}
    made = read_atif({"schema_version": "ATIF-v1.8", "steps": [step]}).messages
    assert (made[0]["tool_calls"][0]["id"], made[1]["tool_call_id"]) == ("7", "7")


async def entries_of(messages: list[dict[str, Any]]) -> list[Entry]:
    manager = ContextManager()
    for message in messages:
        await manager.add_message(message)
    return list(manager.history.snapshot())


def said(messages: list[dict[str, Any]]) -> list[Any]:
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
def test_a_trajectory_that_is_written_and_read_says_the_same(messages: list[dict[str, Any]]) -> None:
    entries = asyncio.run(entries_of(messages))
    written = json.loads(json.dumps(write_atif("s", entries, "1")))
    assert [step["step_id"] for step in written["steps"]] == list(range(1, len(written["steps"]) + 1))
    back = read_atif(written)
    assert said(back.messages) == said([entry.message for entry in entries])
    assert not back.left_out


async def test_compactions_are_system_steps_at_their_time_and_only_the_newest_has_chapters(url: str) -> None:
    manager = ContextManager(load_config({"max_tokens": 3_000}), session_id="talk", store=open_store(url))
    places: list[int] = []  # messages before each compaction
    for number in range(60):
        await manager.add_message(user(f"Question {number}. " + "words " * 60))
        await manager.get_messages_for_request()
        places += [2 * number + 1] * (len(await manager.compactions()) - len(places))
        await asyncio.sleep(0.002)  # times are kept in milliseconds
        await manager.add_message(says(f"Answer {number}. " + "words " * 60))
    rows = await manager.compactions()
    chapters = [one["text"] for one in await manager.chapters()]
    await manager.close()
    written = json.loads(await asyncio.to_thread(run, "export", "talk", "--format", "atif", "--store", url))
    steps = written["steps"]
    assert [one["step_id"] for one in steps] == list(range(1, len(steps) + 1))
    at = [index for index, one in enumerate(steps) if "context_management" in one["extra"]]
    assert [index - earlier for earlier, index in enumerate(at)] == places
    made = [one for one in steps if "context_management" in one["extra"]]
    assert [one["timestamp"] for one in made] == [row["at"] for row in rows]
    assert len(made) > 1
    assert {one["source"] for one in made} == {"system"}
    for one, row in zip(made, rows, strict=True):
        management = one["extra"]["context_management"]
        assert (management["type"], management["boundary"]) == ("compaction", "replace")
        assert management["after_tokens"] == row["after_tokens"]
    assert ["observation" in one for one in made] == [False] * (len(made) - 1) + [True]
    assert [one["content"] for one in made[-1]["observation"]["results"]] == chapters
    back = read_atif(written)
    assert len(back.messages) == 120
    assert back.left_out == {"steps about compactions of the other program": len(made)}


def test_a_text_that_another_program_put_into_the_context_is_read() -> None:
    note = {"step_id": 1, "source": "system", "message": "Note", "extra": {"context_management": {"type": "injection"}}}
    for odd in ({"type": "injection"}, [], None, "", {"type": ["compaction"]}, 7):
        step = {**note, "extra": {"context_management": odd}}
        read = read_atif({"schema_version": "ATIF-v1.7", "steps": [step]})
        assert len(read.messages) + sum(read.left_out.values()) == 1
    read = read_atif({"schema_version": "ATIF-v1.7", "steps": [note]})
    assert [one["content"] for one in read.messages] == ["Note"]


@given(st.lists(STEPS, min_size=1, max_size=6).map(lambda steps: [one for step in steps for one in step]))
def test_exported_messages_come_in_again_as_they_were(messages: list[dict[str, Any]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source, target, file = f"jsonl:{folder}/a", f"sqlite:{folder}/b.db", f"{folder}/out.jsonl"
        (Path(folder) / "in.json").write_text(json.dumps({"messages": messages}))
        run("import", f"{folder}/in.json", "--session", "s", "--store", source)
        run("export", "s", "--format", "messages", "-o", file, "--store", source)
        run("import", file, "--session", "s", "--store", target)
        again = run("export", "s", "--format", "messages", "--store", target)
        assert again == Path(file).read_text(encoding="utf-8")


def test_what_show_prints_as_json_comes_in_without_its_marks(filled: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.jsonl"
    file.write_text(run("show", "two", "--json", "--last", "5", "--store", filled))
    run("import", str(file), "--store", filled)
    shown = [json.loads(line) for line in run("show", "shown", "--json", "--store", filled).splitlines()]
    assert [one["mark"] for one in shown] == ["m1", "m2", "m3", "m4", "m5"]
    assert "mark" not in json.loads(run("export", "shown", "--format", "messages", "--store", filled).splitlines()[0])


def test_a_system_prompt_beside_the_messages_is_the_first_message(url: str, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"system": "Be careful.", "messages": [user("Go on.")]}))
    run("import", str(file), "--store", url)
    first = json.loads(run("export", "request", "--format", "messages", "--store", url).splitlines()[0])
    assert (first["role"], first["content"]) == ("system", "Be careful.")


def test_markdown_has_each_message_and_no_text_can_end_its_block(url: str, tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    seen = user([{"type": "text", "text": "Look."}, {"type": "image", "source": {}}])
    file.write_text(json.dumps([*work(2), call("x"), result("x", "```\n# not a heading\n````"), seen]))
    run("import", str(file), "--session", "s", "--store", url)
    printed = run("export", "s", "--format", "markdown", "-o", str(tmp_path / "s.md"), "--store", url)
    assert "left out: 1 blocks of the type image\n" in printed
    page = (tmp_path / "s.md").read_text()
    assert page.count("\n## m") == 8
    assert "`````\n```\n# not a heading\n````\n`````" in page
    assert stat.S_IMODE((tmp_path / "s.md").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "said_of_it"),
    [
        pytest.param("[" * 200_000, "is no JSON", id="deep"),
        ("{}", "has no known format"),
        ("[1]", "has no known format"),
        ('{"role": "user"}\n{', "line 2"),
        ("", "format"),
        ('[{"role": "user", "content": "x", "metadata": {"n": NaN}}]', "no message that can be stored"),
    ],
)
def test_a_file_of_no_known_format_or_message_is_named_and_makes_no_session(
    url: str, tmp_path: Path, text: str, said_of_it: str
) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    assert said_of_it in run("import", str(file), "--store", url, fails=True)


def test_a_message_that_cannot_be_stored_is_named_and_a_session_that_exists_is_not_added_to(
    url: str, tmp_path: Path
) -> None:
    file = tmp_path / "in.json"
    file.write_text(json.dumps([user("Go on."), {"role": "wizard", "content": "?"}, says("Done.")]))
    printed = run("import", str(file), "--store", url)
    assert "message 2 is left out: " in printed
    assert "2 messages" in printed
    before = run("show", "in", "--store", url)
    assert "--session" in run("import", str(file), "--store", url, fails=True)
    assert run("show", "in", "--store", url) == before


def test_lone_surrogates_come_in_and_are_shown_in_a_report(url: str, tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('[{"role": "user", "content": "a \\ud800 b"}, {"role": "assistant", "content": "\\udfff"}]')
    assert "2 messages" in run("import", str(file), "--store", url)
    run("report", "in", "-o", str(tmp_path / "page.html"), "--store", url)
    for name in ("markdown", "messages", "atif"):
        run("export", "in", "--format", name, "-o", str(tmp_path / name), "--store", url)
