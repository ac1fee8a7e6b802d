"""Mount plans: read, validated, and changed by the options of the command.

For an invalid plan the kernel reports only that it cannot initialise, and it ignores entries without a module. Here
each error names the key and a correct form. One key is not the kernel's: `prompts`, a list of texts, which is removed
before the kernel gets the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ..checks.message_shapes import as_list, as_mapping
from ..replay.recording import prepare
from ..replay.transcripts import Transcript, read_transcript
from .probe import approx_tokens

LISTS = ("providers", "tools", "hooks")
EXAMPLE = "session: {orchestrator: loop-basic, context: context-simple}"
SHARE = 4  # a recording is replayed with a budget of a quarter of its tokens, so that it is compacted a few times
LEAST = 2_000  # tokens of a budget: less does not fit the system prompts of real recordings
ANSWER = 8_192  # tokens of the window of a replayed recording that are reserved for an answer


@dataclass(frozen=True, slots=True)
class Plan:
    """A mount plan, its prompts, and how to show it.

    Attributes:
        prompts: the prompts in order; if empty, they are read from the keyboard.
        opening: messages that are added before the first prompt.
    """

    title: str
    mounts: dict[str, Any]
    prompts: tuple[str, ...] = ()
    opening: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    terse: bool = False

    @property
    def context(self) -> str:
        return module_of(self.mounts["session"]["context"])

    def with_context(self, module: str) -> Plan:
        entry: dict[str, Any] = {"module": module}
        if config := self._context_config():
            entry["config"] = config
        return self._with_context_entry(entry)

    def with_folder(self, folder: Path) -> Plan:
        if not folder.is_dir():
            raise click.ClickException(f"--path: {folder} is not a folder")
        mounts = deepcopy(self.mounts)
        tools: list[dict[str, Any]] = [entry for entry in mounts.get("tools") or () if entry["module"] == "tool-folder"]
        if not tools:
            raise click.ClickException("--path: this plan mounts no tool-folder")
        for entry in tools:
            entry["config"] = {**(entry.get("config") or {}), "path": str(folder)}
        return replace(self, mounts=mounts)

    def with_budget(self, tokens: int) -> Plan:
        """Return the plan with `max_tokens` of the context set, which limits the tokens of every request."""
        old: Any = self.mounts["session"]["context"]
        entry: dict[str, Any] = {"module": old} if isinstance(old, str) else dict(old)
        changed = self._with_context_entry({**entry, "config": {**self._context_config(), "max_tokens": tokens}})
        for provider in changed.mounts["providers"]:
            if provider["module"] == "provider-replay":  # its window is declared by the config: widen it if necessary
                config: dict[str, Any] = {**(provider.get("config") or {})}
                needs = tokens + int(config.get("max_output_tokens") or ANSWER) + 1_000
                provider["config"] = {**config, "context_window": max(needs, int(config.get("context_window") or 0))}
        return changed

    def with_prompts(self, prompts: Sequence[str]) -> Plan:
        return replace(self, prompts=tuple(prompts))

    def _context_config(self) -> dict[str, Any]:
        """Return the config of the context; for a context given by its id alone, the kernel reads `context.config`."""
        entry = self.mounts["session"]["context"]
        holder = self.mounts.get("context") if isinstance(entry, str) else entry
        return dict((as_mapping(holder) or {}).get("config") or {})

    def _with_context_entry(self, entry: dict[str, Any]) -> Plan:
        mounts = deepcopy(self.mounts)
        mounts["session"]["context"] = entry
        return replace(self, mounts=mounts)


def module_of(entry: Any) -> str:
    return entry if isinstance(entry, str) else str(entry["module"])


def entries_of(mounts: Mapping[str, Any]) -> list[Any]:
    session = mounts["session"]
    return [session["orchestrator"], session["context"], *(entry for key in LISTS for entry in mounts.get(key) or ())]


def read_plan(path: Path) -> Plan:
    """Read and validate a mount plan.

    Raises:
        click.ClickException: the file cannot be read, is not YAML, or is not a mount plan.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise click.ClickException(
            f"{path}{_unreadable(problem, 'a mount plan is a YAML file (--path names a folder)')}"
        ) from None
    try:
        found: Any = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise click.ClickException(f"{path} is not YAML: {_where(problem)}") from None
    try:
        mounts, prompts = _checked(found)
    except _BadPlanError as problem:
        raise click.ClickException(f"{path} is not a mount plan: {problem}") from None
    _sources_beside(mounts, path.parent)
    return Plan(f"plan {path}", mounts, prompts)


def _sources_beside(mounts: dict[str, Any], folder: Path) -> None:
    """Make each relative `source` of a validated plan absolute: it is relative to the plan's folder."""
    for entry in entries_of(mounts):
        source = (as_mapping(entry) or {}).get("source")
        if isinstance(source, str) and source and not source.startswith(("file:", "git+", "~")) and "://" not in source:
            entry["source"] = str((folder / source).resolve())


def plan_of_recording(
    file: Path, index: int = 0, *, base: Plan | None = None, context: str | None = None, budget: int | None = None
) -> Plan:
    """Return the plan that replays a recorded session: its loop, provider and tools repeat what was recorded.

    Args:
        index: index of the transcript in the file.
        base: the plan whose context is used; None for context-simple.
        context: the context module to use instead.
        budget: tokens of a request; by default a quarter of the recording.

    Raises:
        click.ClickException: the file cannot be read, or has no transcript with this index.
    """
    transcript = _transcript(file, index)
    if not transcript.messages:
        raise click.ClickException(f"{file}: transcript {index} has no messages")
    size = approx_tokens(transcript.messages)
    prepared = prepare(transcript, max_output_tokens=ANSWER, check=True)
    # At most half of a request for the system prompt, which cannot be compacted.
    tokens = budget or max(LEAST, size // SHARE, 2 * approx_tokens(prepared.recording.system))
    entry: Any = base.mounts["session"]["context"] if base else "context-simple"
    notes = [
        f"{len(transcript.messages):,} messages of about {size:,} tokens as counted here, replayed in requests of at "
        f"most {tokens:,} tokens" + ("" if budget else "; --budget sets another limit"),
        *_adaptations(prepared.notes),
    ]
    plan = Plan(
        f"recording {transcript.id} (number {index} of {file.name})",
        prepared.plan(deepcopy(entry)),
        prepared.prompts,
        tuple(prepared.recording.system),
        tuple(notes),
        terse=True,
    )
    if not plan.prompts:
        raise click.ClickException(f"{file}: transcript {index} has no user message to begin with")
    return (plan.with_context(context) if context else plan).with_budget(tokens)


def _transcript(file: Path, index: int) -> Transcript:
    import zlib

    try:
        return read_transcript(file, index=index)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        raise click.ClickException(f"{file}{_unreadable(problem, 'a transcript is a JSONL file')}") from None
    except ValueError as problem:
        raise click.ClickException(str(problem)) from None


def _unreadable(problem: Exception, advice: str) -> str:
    if isinstance(problem, FileNotFoundError):
        return ": there is no such file"
    if isinstance(problem, IsADirectoryError):
        return f" is a folder; {advice}"
    if isinstance(problem, UnicodeDecodeError):
        return " cannot be read: it is not UTF-8 text"
    return f" cannot be read: {getattr(problem, 'strerror', None) or problem}"


def _adaptations(notes: Sequence[str]) -> list[str]:
    shown = [f"adapted for a loop: {note}" for note in notes[:2]]
    return [*shown, f"... and {len(notes) - 2} more adaptations"] if len(notes) > 2 else shown


# --- validation -------------------------------------------------------------------------------------------------------


class _BadPlanError(Exception):
    """The error of an invalid plan: the key, and a correct form."""


def _checked(found: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    plan = _mapping(found, "the file")
    session = _mapping(plan.get("session"), "`session`", f"write for example  {EXAMPLE}")
    for key in ("orchestrator", "context"):
        if not session.get(key):
            raise _BadPlanError(f"`session.{key}` is missing; write for example  {EXAMPLE}")
        if not isinstance(session[key], str):
            _entry(session[key], f"`session.{key}`")
    for key in LISTS:
        entries = as_list(plan.get(key) or [])
        if entries is None:
            raise _BadPlanError(f"`{key}` is {_kind(plan[key])}, it must be a list of entries like  - module: an-id")
        for place, entry in enumerate(entries):
            _entry(entry, f"`{key}[{place}]`")
    if not plan.get("providers"):
        raise _BadPlanError("`providers` is missing: a session needs one, like  providers: [{module: provider-openai}]")
    prompts = as_list(plan.pop("prompts", None) or [])
    if prompts is None or not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
        raise _BadPlanError("`prompts` must be a list of texts")
    return plan, tuple(prompts)


def _entry(value: Any, where: str) -> None:
    entry = _mapping(value, where, "write  module: an-id, and config: below it if needed")
    module = entry.get("module")
    if not isinstance(module, str) or not module:
        raise _BadPlanError(f"{where} has no `module`; write  module: an-id")
    if entry.get("config") is not None:
        _mapping(entry["config"], f"the config of {module}")


def _mapping(value: Any, what: str, advice: str = "") -> dict[str, Any]:
    if as_mapping(value) is None:
        missing = value is None and what != "the file"
        wrong = "is missing" if missing else f"is {_kind(value)}, it must be keys and values"
        raise _BadPlanError(f"{what} {wrong}{'; ' * bool(advice)}{advice}")
    return value


def _kind(value: object) -> str:
    kinds: dict[type, str] = {list: "a list", str: "a text", dict: "keys and values", type(None): "empty"}
    return kinds.get(type(value), "a single value")


def _where(problem: Exception) -> str:
    """Return line, column and reason of a YAML error, without the lines themselves, which may contain API keys."""
    mark = getattr(problem, "problem_mark", None)
    fault = str(getattr(problem, "problem", None) or "it cannot be read")
    return f"{fault} (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else fault
