"""The session of a run: opened from a plan, fed with prompts, watched, judged.

What can go wrong on the way is told in a sentence with the way out; nothing here shows a traceback unless asked to.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import logging
import re
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, cast

import click

from amplifier_context_core.errors import ContextError

from ..checks.request_checker import check_request
from ..kernel import local_folder, session
from .plan import Plan, entries_of, module_of
from .probe import Watch
from .progress import Narrator
from .report import INDENT, Outcome, judge, summary
from .terminal import Terminal

OURS = ("context-simple", "context-persistent")
_USER = re.compile(r"//[^/@]*@")  # in an address: may hold a password
_SESSION = re.compile(r"^session \S+: ")  # there is only one here
_KERNELS_WORDS = re.compile(
    r"^(RuntimeError: Execution failed: )?(Session initialization failed: RuntimeError: )?"
    r"(Cannot initialize without [a-z ]+: )?"
)
_NOT_THERE = ("not found", "no folder is known")  # the kernel's loader, and the resolver of folders
_KERNELS_NOISE = "model_dump() not available"  # said by the kernel at every event, whatever its payload is
INTERRUPTED = 130  # the shell's code for a program stopped by Ctrl-C


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run.

    Attributes:
        pace: seconds to wait after each request.
        debug: log everything, let exceptions through.
        session_id: of the session; a new one when None.
    """

    pace: float = 0.0
    debug: bool = False
    session_id: str | None = None


def _need_kernel() -> None:
    """Raise an error if the kernel is not installed.

    Raises:
        click.ClickException: names the `pip install` to run.
    """
    if find_spec("amplifier_core") is None:
        raise click.ClickException(
            "amplifier-core is not installed (the kernel that runs the session)\nInstall it: pip install amplifier-core"
        )


async def run_session(plan: Plan, terminal: Terminal, settings: Settings) -> int:
    """Run a plan to its end; the exit code.

    Raises:
        click.ClickException: the session could not be opened, or failed.
    """
    _need_kernel()
    narrator = Narrator(terminal, terse=plan.terse)
    narrator.opened(plan)
    watch = Watch(narrator, check_request, settings.pace)
    with _warnings_shown(narrator, settings.debug):
        async with _opened(plan, settings) as session:
            try:
                there = await watch.begin(session.coordinator)
            except ContextError as problem:
                raise click.ClickException(str(problem)) from None
            for note in _ignored_sources(plan):
                narrator.noted(note)
            if there:
                narrator.noted(f"session {settings.session_id} goes on with the {there:,} messages it has")
            context = session.coordinator.get("context")
            for message in plan.opening:
                await context.add_message(dict(message))
            stopped = await _converse(session, plan, narrator, settings.debug)
            outcome = await judge(watch, session.coordinator, stopped=stopped)
    narrator.close(summary(outcome, terminal.width), INDENT)
    return _exit_code(outcome)


async def _converse(session: Any, plan: Plan, narrator: Narrator, debug: bool) -> bool:
    """Put all prompts; True when the user stopped it.

    Where the user types them, stopping ends the turn and the next prompt is asked for.
    """
    typing = not plan.prompts and sys.stdin.isatty()
    prompts = iter(plan.prompts) if plan.prompts else _typed(narrator) if typing else _piped()
    for prompt in prompts:
        narrator.asked(prompt, typed=typing)
        with _stoppable(session.coordinator, narrator):
            try:
                answer = await session.execute(prompt)
            except Exception as problem:
                narrator.failed()
                if debug:
                    raise
                # The kernel hands on the text of an exception, not the exception.
                text = _KERNELS_WORDS.sub("", f"{type(problem).__name__}: {problem}")
                if text.startswith("BrokenPipeError"):  # nobody reads on, as in `... | head`: click ends quietly
                    raise BrokenPipeError(errno.EPIPE, "nobody reads on") from None
                raise click.ClickException(f"the session failed: {text}") from None
        if not session.coordinator.cancellation.is_cancelled:
            narrator.told(answer)
        elif typing:
            narrator.failed()
            narrator.noted("the turn was stopped")
            session.coordinator.cancellation.reset()
        else:
            return True
    return False


def _piped() -> Generator[str]:
    """Yield what is piped in, as one prompt."""
    text = sys.stdin.read().strip()
    if not text:
        raise click.ClickException('nothing to ask: pass --prompt "...", or give the plan a list `prompts`')
    yield text


def _typed(narrator: Narrator) -> Generator[str]:
    """Yield prompts typed by the user, until an empty line, Ctrl-D, or Ctrl-C twice in a row."""
    narrator.noted("type what to ask; an empty line or Ctrl-D ends the session")
    cleared = False
    while True:
        try:
            text = _line()
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo()  # the cursor is still on the line that was given up
            if cleared:
                return
            cleared = True
            narrator.noted("Ctrl-C again ends the session")
            continue
        if not text.strip():
            return
        cleared = False
        yield text


def _line() -> str:
    """Return a line from the keyboard.

    Raises:
        EOFError: Ctrl-D.
        KeyboardInterrupt: Ctrl-C.
    """
    # asyncio's own handler would swallow the Ctrl-C: it cancels the task that waits right here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("> ")
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stoppable(coordinator: Any, narrator: Narrator) -> Generator[None]:
    """Let Ctrl-C end a turn as a host would: once after the running tools, twice at once."""

    def stop() -> None:
        if coordinator.cancellation.is_cancelled:
            coordinator.cancellation.request_immediate()
        else:
            narrator.noted("stopping after the running step (Ctrl-C again: at once)")
            coordinator.cancellation.request_graceful()

    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _exit_code(outcome: Outcome) -> int:
    if outcome.stopped:
        return INTERRUPTED
    return 0 if outcome.good else 1


# --- opening ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _opened(plan: Plan, settings: Settings) -> AsyncGenerator[Any]:
    """The session of a plan, all its modules mounted."""
    async with AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(session(plan.mounts, session_id=settings.session_id))
        except Exception as problem:
            if settings.debug:
                raise
            raise click.ClickException(_why_not_opened(plan, problem)) from None
        yield running


def _why_not_opened(plan: Plan, problem: Exception) -> str:
    """The kernel's error in a sentence; a module that is not there is named, with those that are."""
    text = _KERNELS_WORDS.sub("", str(problem))
    installed = sorted({point.name for point in entry_points(group="amplifier.modules")})
    for entry in entries_of(plan.mounts):
        module = module_of(entry)
        if module in installed or f"'{module}'" not in text or not any(words in text for words in _NOT_THERE):
            continue
        source: Any = entry.get("source") if isinstance(entry, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if source:
            return f"{module} is not installed, and nothing is fetched here\nInstall it: pip install '{source}'"
        if module in OURS:
            folder = f"./amplifier_{module.replace('-', '_')}"
            return f"{module} is not installed\nInstall it: pip install {folder}   (in a clone of the repository)"
        near = difflib.get_close_matches(module, installed, n=1, cutoff=0.8)
        kin = [name for name in installed if name.split("-")[0] == module.split("-")[0]]
        meant = f"; did you mean {near[0]}?" if near else ""
        return (
            f"unknown module {module}{meant}\n"
            f"Installed here: {', '.join(kin or installed) or 'none'}. "
            "For another one install its package, or give its entry a `source` with its folder."
        )
    return f"the session could not be opened: {text}\n(--debug shows where)"


def _ignored_sources(plan: Plan) -> list[str]:
    """Return a sentence for each module whose `source` is not a folder here: the installed package serves instead."""
    notes: list[str] = []
    for entry in entries_of(plan.mounts):
        source: Any = cast("dict[str, Any]", entry).get("source") if isinstance(entry, dict) else None
        if not source or local_folder(source) is not None:
            continue
        for point in entry_points(group="amplifier.modules", name=module_of(entry)):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            without_user = _USER.sub("//", str(source))
            notes.append(
                f"{module_of(entry)}: nothing is fetched here, the installed {package} is used, not {without_user}"
            )
    return notes


@contextmanager
def _warnings_shown(narrator: Narrator, debug: bool) -> Generator[None]:
    """Warnings of any logger become notes on screen, not raw lines (and the kernel's tracebacks) between the rows."""
    root = logging.getLogger()
    handler: logging.Handler = logging.StreamHandler() if debug else _NoteHandler(narrator)
    handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    handler.addFilter(lambda record: not record.getMessage().startswith(_KERNELS_NOISE))
    level = root.level
    root.addHandler(handler)
    if debug:
        root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _NoteHandler(logging.Handler):
    def __init__(self, narrator: Narrator) -> None:
        super().__init__()
        self._narrator = narrator

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("amplifier_core"):  # its failures end the run, and are told then
            self._narrator.noted(_SESSION.sub("", record.getMessage()))
