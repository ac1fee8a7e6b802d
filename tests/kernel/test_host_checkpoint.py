"""Checkpoints that a host saves and restores: the calls of `microsoft/amplifier-unified`, see `hosted.py`."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.hosted import IDENTITY, process, view_of, worked

pytestmark = pytest.mark.kernel
MODULES = ("simple", "summary")  # the store of the other has the checkpoint


async def test_a_resumed_session_continues_with_the_view_of_the_process_before_and_what_came_after_it(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as (host, context):
        last = await worked(host, context)
        assert len(host.awaited) == 1 + (await context.explain())["compactions"]
        assert host.status["status"] == "saved"
        assert host.status["sourceRevision"]["messages"] > 0
    for _ in range(2):
        async with process(tmp_path) as (host, context):
            assert await view_of(context) == last
            assert host.public()["status"] == "restored"
            assert (await context.explain())["compactions"] == 0
            await host.checkpoint()  # after the next tool: the restored checkpoint is saved again
            assert host.status["status"] == "saved"
    later = {"role": "assistant", "content": "Nothing there."}
    host.transcript.write_text(json.dumps([*json.loads(host.transcript.read_text()), later]))
    async with process(tmp_path) as (host, context):
        view = await view_of(context)
        assert host.public()["status"] == "restored"
        assert (view[:-1], view[-1]["content"]) == (last, later["content"])
    host.record.unlink()
    async with process(tmp_path) as (host, context):
        assert (await view_of(context))[:-1] != last, "without the record the view is another one"


def with_first_shown(record: Any, **changed: Any) -> Any:
    """Change the first message that a record shows; the record is not damaged."""
    state = json.loads(record["state"])
    state["views"][0]["checkpoint"]["segments"][0]["shown"][0]["message"].update(changed)
    text = json.dumps(state)
    return {**record, "state": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def same(saved: Any) -> Any:
    return saved


Change = Callable[[Any], Any]
CHANGES: list[tuple[str, Change, Change, dict[str, Any], dict[str, Any]]] = [  # of transcript, record, identity, config
    ("another history", lambda saved: [*saved[:2], {**saved[2], "content": "full"}, *saved[3:]], same, {}, {}),
    ("another history", lambda saved: saved[:5], same, {}, {}),
    ("damaged", same, lambda saved: {**saved, "state": saved["state"].replace("file", "fill")}, {}, {}),
    ("makes no sense (InvalidMessage)", same, partial(with_first_shown, role="x"), {}, {}),
    ("makes no sense (InvalidMessage)", same, partial(with_first_shown, metadata=10**30), {}, {}),
    ("no object", same, lambda _: [], {}, {}),
    ("format", same, lambda _: {"format": "context-managed-boundary-v1"}, {}, {}),
    ("provider or model", same, same, {"model": "two"}, {}),
    ("needs the names", same, same, {"model": None}, {}),
    ("configuration", same, same, {}, {"output_share": 0.07}),
]


async def test_a_record_of_something_else_is_refused(tmp_path: Path) -> None:
    async with process(tmp_path) as (host, context):
        await worked(host, context)
    saved = json.loads(host.transcript.read_text()), json.loads(host.record.read_text())
    for reason, transcript, record, identity, config in CHANGES:
        host.transcript.write_text(json.dumps(transcript(saved[0])))
        host.record.write_text(json.dumps(record(saved[1])))
        async with process(tmp_path, {**IDENTITY, **identity}, **config) as (resumed, context):
            await view_of(context)
            status = resumed.public()
            assert (status["status"], reason in status["reason"]) == ("rejected", True), status
            assert status["originalsAvailable"] is True


async def test_a_host_that_fails_stops_no_request_is_awaited_again_and_has_no_record_before_a_compaction(
    tmp_path: Path,
) -> None:
    async with process(tmp_path) as (host, context):
        host.transcript = tmp_path / "missing" / "transcript.json"
        await context.add_message({"role": "user", "content": "Hi."})
        await view_of(context)
        host.transcript = tmp_path / "transcript.json"
        await view_of(context)
        await view_of(context)
        assert len(host.awaited) == 2
        assert json.loads(host.transcript.read_text()) == await context.get_messages()
        assert (host.record.exists(), host.public()["status"]) == (False, "empty")
