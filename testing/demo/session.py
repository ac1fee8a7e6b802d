"""The session of a run: opened from a plan, given its prompts, recorded, evaluated.

Every expected failure becomes one sentence with the next step. A traceback is shown only with `--debug`.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import logging
import re
import signal
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import click

from amplifier_context_core.errors import ContextError
from amplifier_context_core.kernel import warn_of_duplicate_ids

from ..checks.message_shapes import as_mapping
from ..kernel import local_folder, session
from .plan import Plan, module_of
from .probe import ContextProbe
from .progress import ProgressPrinter
from .report import INDENT, evaluate

_SESSION = re.compile(r"^session \S+: ")  # not needed here: a run has one session
_KERNEL_PREFIX = re.compile(
    r"^(RuntimeError: Execution failed: )?(Session initialization failed: RuntimeError: )?"
    r"(Cannot initialize without [a-z ]+: )?"
)
_NOT_FOUND = ("not found", "no folder is known")  # the kernel's loader, and the resolver of folders
_KERNEL_NOISE = "model_dump() not available"  # the kernel logs this at every event
INTERRUPTED = 130  # exit code of a program that was stopped by Ctrl-C: 128 + SIGINT


async def run_session(plan: Plan, session_id: str, *, pace: float = 0.0, debug: bool = False) -> int:
    """Run a plan and return the exit code; wait `pace` seconds after each request.

    Raises:
        click.ClickException: the kernel is missing, or the session cannot be opened, or fails.
    """
    if find_spec("amplifier_core") is None:
        raise click.ClickException(
            "amplifier-core is not installed (the kernel that runs the session)\nInstall it: pip install amplifier-core"
        )
    progress = ProgressPrinter()
    origin = _origin(plan.mounts["session"]["context"])
    source = f" ({origin})" if origin else ""
    progress.print([(f"amplifier-context run · {plan.title} · memory: {plan.context}{source}", "")])
    with _warnings_shown(progress, debug):
        warn_of_duplicate_ids(plan.context)  # the other module, where it is the one that is mounted, does not
        async with AsyncExitStack() as stack:
            try:
                running = await stack.enter_async_context(session(plan.mounts, session_id=session_id))
            except Exception as problem:
                if debug:
                    raise
                raise click.ClickException(_open_error(plan, problem)) from None
            try:
                probe = await ContextProbe.mounted(running.coordinator, progress, pace)
            except ContextError as problem:
                raise click.ClickException(str(problem)) from None
            if probe.added:
                progress.note(f"session {session_id} continues with its {len(probe.added):,} stored messages")
            stopped = await _execute_prompts(running, plan, progress, debug)
            is_sound, lines = await evaluate(probe, progress.width)
    progress.finish()
    for line in lines:
        progress.print(line, INDENT)
    if stopped:
        progress.print([("  stopped       by you, before the last prompt", "yellow")])
    return INTERRUPTED if stopped else 0 if is_sound else 1


async def _execute_prompts(running: Any, plan: Plan, progress: ProgressPrinter, debug: bool) -> bool:
    """Execute all prompts; return True if the user stopped the run."""
    cancellation = running.coordinator.cancellation
    for prompt in plan.prompts or _read():
        progress.on_prompt(prompt)
        with _cancellable(cancellation, progress):
            try:
                answer = await running.execute(prompt)
            except Exception as problem:
                progress.finish()
                if debug:
                    raise
                # The kernel passes on the text of an exception, not the exception.
                text = _KERNEL_PREFIX.sub("", f"{type(problem).__name__}: {problem}")
                if text.startswith("BrokenPipeError"):  # the reader closed the pipe, as in `... | head`: no word
                    raise BrokenPipeError(errno.EPIPE, "the reader closed the pipe") from None
                raise click.ClickException(f"the session failed: {text}") from None
        if cancellation.is_cancelled:
            return True
        progress.on_answer(answer)
    return False


def _read() -> list[str]:
    text = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    if not text:
        raise click.ClickException('no prompt: pass --prompt "...", or add a list `prompts` to the plan')
    return [text]


@contextmanager
def _cancellable(cancellation: Any, progress: ProgressPrinter) -> Generator[None]:
    """Let Ctrl-C cancel a turn as a host does: the first after the running tools, the second immediately."""

    def stop() -> None:
        if cancellation.is_cancelled:
            cancellation.request_immediate()
        else:
            progress.note("stopping after the running step (Ctrl-C again stops immediately)")
            cancellation.request_graceful()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _open_error(plan: Plan, problem: Exception) -> str:
    """Return the kernel's error as a sentence; for an unknown module, name the installed ones."""
    text = _KERNEL_PREFIX.sub("", str(problem))
    installed = sorted({point.name for point in entry_points(group="amplifier.modules")})
    for entry in plan.entries:
        module = module_of(entry)
        if module in installed or f"'{module}'" not in text or not any(words in text for words in _NOT_FOUND):
            continue
        if source := _source(entry):
            return f"{module} is not installed, and nothing is fetched here\nInstall it: pip install '{source}'"
        near = difflib.get_close_matches(module, installed, n=1, cutoff=0.8)
        return (
            f"unknown module {module}{f'; did you mean {near[0]}?' if near else ''}\n"
            f"Installed here: {', '.join(installed) or 'none'}. "
            "To use another module, install its package, or add a `source` with its folder to its entry."
        )
    return f"the session cannot be opened: {text}\n(--debug shows the traceback)"


def _origin(entry: Any) -> str:
    """Return what the module of an entry is loaded from: a folder, or distribution and version; "" if it is unknown.

    The kernel looks in the same order: the folder of a `source`, then the first entry point of the module id.
    """
    folder = local_folder(source) if (source := _source(entry)) else None
    if folder is not None:
        return f"folder {folder}"
    point = next(iter(entry_points(group="amplifier.modules", name=module_of(entry))), None)
    return "" if point is None else f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _source(entry: Any) -> Any:
    return (as_mapping(entry) or {}).get("source")


@contextmanager
def _warnings_shown(progress: ProgressPrinter, debug: bool) -> Generator[None]:
    """Print warnings of any logger as notes, so that no raw line or traceback appears between the rows."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.name.startswith("amplifier_core"):  # its failures end the run and are reported then
                with suppress(BrokenPipeError):  # that is no fault of what warned; the next line ends the run
                    progress.note(_SESSION.sub("", record.getMessage()))

    root = logging.getLogger()
    handler: logging.Handler = logging.StreamHandler() if debug else Notes()
    handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    handler.addFilter(lambda record: not record.getMessage().startswith(_KERNEL_NOISE))
    level = root.level
    root.addHandler(handler)
    if debug:
        root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
