"""The keyboard of `run`: Ctrl-C clears the prompt or stops the turn; the session is ended by a second one or Ctrl-D."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform == "win32", reason="terminals are others there"),
]

CODE = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from amplifier_context_core.cli.app import main
main()
"""
CTRL_C, CTRL_D = b"\x03", b"\x04"
PATIENCE = 60  # seconds
SOON = 10  # seconds


class Keyboard:
    """A `run` at a terminal of its own: what is typed, and what is on the screen."""

    def __init__(self, plan: Path, folder: Path) -> None:
        self._master, slave = os.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, "run", str(plan), "--pace", "0"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
        )
        os.close(slave)
        self.screen = ""

    def interrupt(self, text: str) -> None:
        """Type Ctrl-C once the keyboard is waited for, and wait for a text.

        Python takes note of a signal that comes after it wrote a prompt and before it waits for the keyboard, but acts
        on it only when another one ends the waiting. Where the system does not show what a process waits for, Ctrl-C is
        typed once more when nothing happens.
        """
        until = time.monotonic() + SOON
        while not self._reading() and time.monotonic() < until:
            time.sleep(0.01)
        self.type(CTRL_C)
        try:
            self.wait_for(text, SOON)
        except TimeoutError:
            self.type(CTRL_C)
            self.wait_for(text)

    def _reading(self) -> bool:
        """True if the process waits in a system call whose first argument is standard input, or if that is unknown."""
        try:
            call = Path(f"/proc/{self.process.pid}/syscall").read_text().split()
        except OSError:
            return True
        return call[1:2] == ["0x0"]

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        """Read until a text appears after what was waited for before; all that was read until then."""
        until = time.monotonic() + seconds
        while text not in self.screen:
            if time.monotonic() > until:
                raise TimeoutError(f"{text!r} does not appear: {self.screen!r}")
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._master, 65_536).decode())
                except OSError:  # the process has ended
                    assert text in self.screen, f"{text!r} does not appear: {self.screen!r}"
        seen, _, self.screen = self.screen.partition(text)
        return seen

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def ended(self) -> int:
        """The exit code, once all is read."""
        while True:
            try:
                if not os.read(self._master, 65_536):
                    break
            except OSError:
                break
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def keyboard(plan: Callable[..., Path], tmp_path: Path) -> Generator[Keyboard]:
    providers = "[{module: provider-replay, config: {script: [One., Two., Three.], delay_ms: 700}}]"
    made = Keyboard(plan(providers=providers), tmp_path)
    yield made
    made.close()


def test_ctrl_c_clears_the_prompt_and_a_second_one_ends_the_session(keyboard: Keyboard) -> None:
    keyboard.wait_for("> ")
    keyboard.type(b"half a wish")
    keyboard.wait_for("half a wish")
    keyboard.interrupt("Ctrl-C again ends the session")
    keyboard.wait_for("> ")
    keyboard.type(b"a whole one\n")
    keyboard.wait_for("agent  One.")
    keyboard.wait_for("> ")
    keyboard.interrupt("Ctrl-C again ends the session")
    keyboard.wait_for("> ")
    keyboard.interrupt("Summary")
    assert keyboard.ended() == 0


def test_ctrl_c_in_a_turn_ends_the_turn_not_the_session(keyboard: Keyboard) -> None:
    keyboard.wait_for("> ")
    keyboard.type(b"first\n")
    keyboard.wait_for("compactions so far")
    keyboard.type(CTRL_C)  # the event loop runs: no signal can be overlooked
    keyboard.wait_for("stopping after the running step")
    keyboard.wait_for("the turn was stopped")
    keyboard.wait_for("> ")
    keyboard.type(b"second\n")
    keyboard.wait_for("agent  ")
    keyboard.wait_for("> ")
    keyboard.type(CTRL_D)
    keyboard.wait_for("Summary")
    assert keyboard.ended() == 0


@pytest.mark.parametrize("keys", [CTRL_D, b"\n"])
def test_ctrl_d_or_an_empty_line_ends_the_session(keyboard: Keyboard, keys: bytes) -> None:
    keyboard.wait_for("> ")
    keyboard.type(b"only one\n")
    keyboard.wait_for("agent  One.")
    keyboard.wait_for("> ")
    keyboard.type(keys)
    keyboard.wait_for("Summary")
    assert keyboard.ended() == 0
