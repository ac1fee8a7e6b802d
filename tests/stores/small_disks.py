"""Files and file systems that take only so many bytes."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def largest_file(size: int) -> Generator[None]:
    """Limit the bytes of a file of this process, like ``ulimit -f``: a write that passes the limit is cut short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def file_system(folder: Path, size: str) -> Generator[Path]:
    """Mount a file system of this size, such as ``256k``, in memory; the test is skipped where it cannot be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
