"""Checkpoints that a host saves and restores: the calls of `microsoft/amplifier-unified`, see `hosted.py`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.hosted import IDENTITY, Host, process, view_of, worked

pytestmark = pytest.mark.kernel


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


def unchanged(host: Host) -> None:
    pass


def edited_transcript(host: Host) -> None:
    messages = json.loads(host.transcript.read_text())
    messages[2]["content"] = "place 0 is full"
    host.transcript.write_text(json.dumps(messages))


def shorter_transcript(host: Host) -> None:
    host.transcript.write_text(json.dumps(json.loads(host.transcript.read_text())[:5]))


def changed_state(host: Host) -> None:
    record = json.loads(host.record.read_text())
    record["state"] = record["state"].replace("place", "plaza")
    host.record.write_text(json.dumps(record))


def with_first_shown(key: str, value: object) -> Callable[[Host], None]:
    """Return a change of the first message that the record shows; the record is not damaged."""

    def change(host: Host) -> None:
        record = json.loads(host.record.read_text())
        state = json.loads(record["state"])
        state["views"][0]["checkpoint"]["segments"][0]["shown"][0]["message"][key] = value
        record["state"] = json.dumps(state)
        record["sha256"] = hashlib.sha256(record["state"].encode()).hexdigest()
        host.record.write_text(json.dumps(record))

    return change


CHANGES: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("another history", edited_transcript, IDENTITY, {}),
    ("another history", shorter_transcript, IDENTITY, {}),
    ("damaged", changed_state, IDENTITY, {}),
    ("makes no sense (InvalidMessage)", with_first_shown("role", "x"), IDENTITY, {}),
    ("makes no sense (InvalidMessage)", with_first_shown("metadata", 10**30), IDENTITY, {}),
    ("no object", lambda host: host.record.write_text("[]"), IDENTITY, {}),
    ("format", lambda host: host.record.write_text('{"format": "context-managed-boundary-v1"}'), IDENTITY, {}),
    ("provider or model", unchanged, {**IDENTITY, "model": "two"}, {}),
    ("needs the names", unchanged, {**IDENTITY, "model": None}, {}),
    ("configuration", unchanged, IDENTITY, {"output_share": 0.07}),
]


async def test_a_record_of_something_else_is_refused(tmp_path: Path) -> None:
    async with process(tmp_path) as (host, context):
        await worked(host, context)
    saved = host.transcript.read_text(), host.record.read_text()
    for reason, change, identity, config in CHANGES:
        host.transcript.write_text(saved[0])
        host.record.write_text(saved[1])
        change(host)
        async with process(tmp_path, identity, **config) as (resumed, context):
            await view_of(context)
            status = resumed.public()
            assert (status["status"], reason in status["reason"]) == ("rejected", True), status
            assert status["originalsAvailable"] is True


async def test_a_session_without_a_compaction_leaves_the_saved_record_alone(tmp_path: Path) -> None:
    async with process(tmp_path) as (host, context):
        await context.add_message({"role": "user", "content": "Hi."})
        await view_of(context)
        await host.checkpoint()
        assert not host.record.exists()
        assert host.public()["status"] == "empty"


async def test_between_compactions_a_record_is_made_once(tmp_path: Path) -> None:
    """It may have megabytes, hosts ask after each tool, and the event loop waits."""
    async with process(tmp_path) as (host, context):
        await worked(host, context)
        first, second = (context.requests.checkpoint.export(IDENTITY) for _ in range(2))
        assert first is not None
        assert second is not None
        assert first["state"] is second["state"]
        await context.compact()
        third = context.requests.checkpoint.export(IDENTITY)
        assert third is not None
        assert third["state"] != first["state"]


async def test_a_host_that_fails_stops_no_request_and_is_awaited_again(tmp_path: Path) -> None:
    async with process(tmp_path) as (host, context):
        host.transcript = tmp_path / "missing" / "transcript.json"
        await context.add_message({"role": "user", "content": "Hi."})
        await view_of(context)
        host.transcript = tmp_path / "transcript.json"
        await view_of(context)
        await view_of(context)
        assert len(host.awaited) == 2
        assert json.loads(host.transcript.read_text()) == await context.get_messages()
