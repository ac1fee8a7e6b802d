"""Another process that uses a store until a test has seen what that means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def running(code: str, argument: str) -> Generator[subprocess.Popen[bytes]]:
    """Run code in another process. It prints `ready`, then reads standard input, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", code, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
