"""Trajectories in ATIF, the Agent Trajectory Interchange Format of the Harbor project: v1.8 is written, v1.x is read.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_context_core import Entry
from amplifier_context_core.messages.parsing import arguments_of, calls_of, json_text, result_text, results_of, text_of
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.view.figures import line_of_compaction

from .conversation import BY_A_PROGRAM, Conversation, UnknownFormat, items, mapping, text_in, with_metadata

VERSION = "ATIF-v1.8"
_WRITES_CHAPTERS = frozenset({"fold", "condense"})
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def is_atif(value: object) -> bool:
    """True for a trajectory of any version 1."""
    found = mapping(value)
    return found is not None and str(found.get("schema_version", "")).startswith("ATIF-v1.")


def read_atif(value: object) -> Conversation:
    """Return the conversation of a trajectory.

    Raises:
        UnknownFormat: it is none, or of another major version.
    """
    trajectory = mapping(value)
    if trajectory is None or not is_atif(value):
        raise UnknownFormat("no ATIF trajectory of a version 1.x: `schema_version` must begin with ATIF-v1.")
    made = Conversation()
    for number, one in enumerate(items(trajectory.get("steps")), 1):
        step = mapping(one)
        role = _ROLES.get(str(step.get("source"))) if step is not None else None
        if step is None or role is None:
            raise UnknownFormat(f"step {number} is no object with the source system, user or agent")
        management = (mapping(step.get("extra")) or {}).get("context_management")
        if management and (mapping(management) or {}).get("type") != "injection":  # that is a text of the conversation
            made.left_out["steps about compactions of the other program"] += 1
            continue
        _read_step(made, step, role)
    for name in ("subagent_trajectories", "continued_trajectory_ref", "notes"):
        made.left_out[name] += bool(trajectory.get(name))
    made.left_out = +made.left_out
    return made


def _read_step(made: Conversation, step: Mapping[str, Any], role: str) -> None:
    message: dict[str, Any] = {"role": role, "content": text_in(made, step.get("message"))}
    calls = [call for one in items(step.get("tool_calls")) if (call := mapping(one)) is not None]
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    made.left_out["texts of reasoning"] += bool(step.get("reasoning_content"))
    metrics = mapping(step.get("metrics")) or {}
    made.messages.append(
        with_metadata(
            message,
            timestamp=step.get("timestamp"),
            model=step.get("model_name"),
            usage={
                "input_tokens": metrics["prompt_tokens"],
                "output_tokens": metrics.get("completion_tokens") or 0,
                "cache_read_tokens": metrics.get("cached_tokens") or 0,
                "cost_usd": str(metrics.get("cost_usd")),
            }
            if metrics.get("prompt_tokens")
            else None,
        )
    )
    known = {_id(call.get("tool_call_id")) for call in calls}
    for one in items((mapping(step.get("observation")) or {}).get("results")):
        result = mapping(one) or {}
        source, content = _id(result.get("source_call_id")), text_in(made, result.get("content"))
        if source and source in known:
            made.messages.append({"role": "tool", "tool_call_id": source, "content": content})
        else:
            made.messages.append({"role": "user", "content": content, "metadata": dict(BY_A_PROGRAM)})
        made.left_out["references to trajectories of sub-agents"] += bool(result.get("subagent_trajectory_ref"))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json_text(arguments if arguments is not None else {})
    function = {"name": str(call.get("function_name") or "unknown"), "arguments": text}
    return {"id": _id(call.get("tool_call_id")), "type": "function", "function": function}


def _id(value: object) -> str:
    return str(value or "")  # other programs may write numbers


def write_atif(
    session_id: str,
    entries: Sequence[Entry],
    version: str,
    compactions: Sequence[Mapping[str, Any]] = (),
    chapters: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a session as a trajectory. Results stand in the step of the answer that made their call.

    Args:
        compactions: as `ContextManager.compactions` returns them. Each is a system step before the first message that
            is younger (the RFC's convention on context management).
        chapters: texts of the chapters of the last view, which the newest compaction put in place of messages.
    """
    steps: list[dict[str, Any]] = []
    open_calls: dict[str, dict[str, Any]] = {}  # the newest step with a call of this id
    due = deque(compactions)
    for entry in entries:
        while due and (seconds_of(due[0]["at"]) or 0) < (seconds_of(entry.completed) or 0):
            steps.append(_compaction(len(steps) + 1, due.popleft(), chapters if not due else ()))
        results = list(results_of(entry.message))
        text = text_of(entry.message.get("content"))
        if not results or (text and entry.role != "tool"):
            steps.append(_step(len(steps) + 1, entry, text))
            open_calls |= {call.id: steps[-1] for call in calls_of(entry.message) if call.id}
        for result in results:
            step = open_calls.get(result.call_id)
            made = {"source_call_id": result.call_id, "content": result_text(result.content)}
            if step is None:  # a result without a call: a step of its own, without the reference
                step, made = _step(len(steps) + 1, entry, "", source="system"), {"content": made["content"]}
                steps.append(step)
            step.setdefault("observation", {"results": []})["results"].append(made)
    steps += [
        _compaction(number, row, chapters if row is due[-1] else ()) for number, row in enumerate(due, len(steps) + 1)
    ]
    agent = {"name": "amplifier", "version": version}
    return {
        "schema_version": VERSION,
        "session_id": session_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
    }


def _compaction(number: int, row: Mapping[str, Any], chapters: Sequence[str]) -> dict[str, Any]:
    """Return a step that says what a compaction did, and what later requests have in place of what it took out."""
    kind = "compaction" if _WRITES_CHAPTERS.intersection(row["strategies"]) else "pruning"
    figures = {key: value for key, value in row.items() if key != "at"}
    step = {"step_id": number, "timestamp": row["at"], "source": "system", "message": line_of_compaction(row)}
    step["extra"] = {"context_management": {"type": kind, "boundary": "replace", **figures}}
    if chapters:
        step["observation"] = {"results": [{"content": text} for text in chapters]}
    return step


def _step(number: int, entry: Entry, text: str, source: str | None = None) -> dict[str, Any]:
    role = {"assistant": "agent", "user": "user", "tool": "agent"}.get(entry.role, "system")
    step: dict[str, Any] = {"step_id": number, "timestamp": entry.created or None, "source": source or role}
    step |= {"message": text, "extra": {"mark": entry.mark}}
    if calls := list(calls_of(entry.message)):
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments_of(call)} for call in calls
        ]
    if entry.response:
        step["model_name"] = entry.response.model
        if usage := entry.response.usage:
            metrics: dict[str, Any] = {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "cached_tokens": usage.cache_read_tokens,
            }
            if usage.cost_usd is not None:
                metrics["cost_usd"] = float(usage.cost_usd)
            step["metrics"] = metrics
    return {key: value for key, value in step.items() if value is not None}
