"""Mounting opens nothing and takes every config there is; modules pass the kernel's own suites."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ContextValidator
from amplifier_core.validation.behavioral import ContextBehaviorTests

from amplifier_context_core import ContextManager
from amplifier_context_core.kernel import warn_of_duplicate_ids
from tests.distributions import install
from tests.kernel.hosted import CURRENT
from tests.replaced import REPLACED

pytestmark = pytest.mark.kernel

# The config keys of the replaced modules, with values that their users have.
USED: dict[str, Any] = {
    **REPLACED,
    "output_reserve_fraction": 0.5,
    "token_meter": "actual",
    "memory_files": [str(Path(__file__).parents[2] / "LICENSE")],
    "clear_at_least": 1_000,
}


async def mount(config: dict[str, Any] | None = None) -> ContextManager:
    coordinator = MockCoordinator()
    await CURRENT.mount(coordinator, config)
    return coordinator.get("context")


_WATCHED_MOUNT = """
import asyncio, importlib, os, sys
from amplifier_core.testing import MockCoordinator
module = importlib.import_module(sys.argv[1])
from amplifier_context_core import kernel, plugins

plugins.installed_plugins()  # reads the metadata of installed packages, as an import does
kernel.warn_of_duplicate_ids(module.MODULE)  # so does this, once in a process
seen, kinds = [], {"open", "socket", "os", "shutil", "tempfile", "sqlite3", "fcntl", "subprocess"}

def audit(event, args):
    imports = event in ("os.listdir", "os.scandir") or (event == "open" and str(args[0]).endswith((".py", ".pyc")))
    if event.split(".")[0] in kinds and not imports:
        seen.append([event, str(args[0]) if args else ""])

async def main():
    config = {"transcript_path": "/tmp/never", "storage_path": "/tmp/never", "memory_files": ["AGENTS.md"]}
    coordinator = MockCoordinator()
    sys.addaudithook(audit)
    cleanup = await module.mount(coordinator, config)
    await cleanup()
    print(seen, flush=True)
    os._exit(0)  # CPython 3.11 crashes now and then when it ends with an audit hook written in Python

asyncio.run(main())
"""


def test_mounting_opens_no_file_no_socket_and_makes_no_folder() -> None:
    command = [sys.executable, "-c", _WATCHED_MOUNT, CURRENT.package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr


async def test_the_config_of_the_replaced_module_works_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        manager = await mount(dict(USED))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len([record for record in caplog.records if "without meaning" in record.getMessage()]) == 1
    assert (manager.config.max_tokens, manager.config.truncate_chars) == (200_000, 250)


async def test_a_second_distribution_with_its_module_id_is_named_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "acme-module", "1.0.7", "amplifier.modules", {CURRENT.module: "acme_module:mount"})
    monkeypatch.syspath_prepend(tmp_path)
    warn_of_duplicate_ids.cache_clear()
    for _ in range(2):  # as a child session does
        await mount()
    warn_of_duplicate_ids.cache_clear()
    (warning,) = (record.getMessage() for record in caplog.records if "module id" in record.getMessage())
    assert "acme-module 1.0.7 and amplifier-context-" in warning


class TestBehaviour(ContextBehaviorTests):
    """What the kernel asks of a mounted context."""

    """What the kernel asks of the package."""


async def test_the_kernels_validator_passes_the_folder(module_path: Path) -> None:
    result = await ContextValidator().validate(module_path)
    assert result.checks
    assert [*result.errors, *result.warnings] == []
