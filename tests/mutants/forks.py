"""Run chosen tests against one mutant, in a fork that imports the packages with the mutated source.

This process has imported what is not ours (`warm_up`), never one of our packages: each fork imports those itself, from
the files on disk but for the one module that is mutated. Nothing on disk changes.
"""

import contextlib
import gc
import importlib
import importlib.util
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

import click
import pytest

from tests.mutants.reach import KEPT, OPTIONS, ROOT

FOREIGN = """
    hypothesis.internal.conjecture.engine pytest_asyncio.plugin pydantic tiktoken bpe_openai numpy orjson rich.live
    click psycopg_pool redis.asyncio amplifier_core aiofiles anyio.pytest_plugin xdist.plugin _pytest.junitxml
"""
START = 60.0  # seconds to the first test
PATIENCE = 20.0, 20.0  # seconds for a test, and how many times its own duration on top of that
MEMORY = 6 << 30  # bytes of address space: a mutant may fill a list without end


@dataclass(frozen=True)
class Outcome:
    verdict: str  # killed | timeout | survived
    by: str = ""  # node id of the test; "" if the packages or conftest.py could not be imported
    ran: int = 0


def warm_up() -> None:
    """Import what takes long and is not ours. A module that is not installed is left out."""
    for name in FOREIGN.split():
        try:
            importlib.import_module(name)
        except ImportError:
            click.echo(f"not installed: {name}", err=True)
    gc.collect()
    gc.freeze()


def run(source: tuple[str, str] | None, tests: Sequence[tuple[str, float]], seconds: float) -> Outcome:
    """Run tests (node id, its usual seconds) in this order until one fails; stop after so many seconds.

    `source` is the mutated file and its text; None is the tree as it is.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(writer, source, [test for test, _ in tests], seconds)
    os.close(writer)
    try:
        return _watch(reader, dict(tests))
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _watch(reader: int, usual: dict[str, float]) -> Outcome:
    ran, current, left, unread = 0, "", START, b""
    while True:
        if not select.select([reader], [], [], left)[0]:
            return Outcome("timeout", current, ran)
        if not (data := os.read(reader, 1 << 16)):
            return Outcome("killed", current, ran)  # the child died: out of memory, or a crash
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            event, _, test = line.decode().partition(" ")
            if event == "failed":
                return Outcome("killed", test, ran)
            if event == "end":
                return Outcome("survived" if test in ("0", "5") else "killed", "", ran)  # 5: no tests
            ran, current = ran + 1, test
            left = PATIENCE[0] + PATIENCE[1] * usual.get(test, 0.0)


class _Reporter:
    """A plug-in of pytest: chooses and orders the tests, and reports each to the parent."""

    def __init__(self, pipe: int, tests: Sequence[str], seconds: float) -> None:
        self._pipe, self._order = pipe, {test: at for at, test in enumerate(tests)}
        self._end = time.monotonic() + seconds

    def send(self, event: str, test: str) -> None:
        os.write(self._pipe, f"{event} {test}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._order), key=lambda i: self._order[i.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if time.monotonic() > self._end:
            self.send("end", "0")
        self.send("started", item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.send("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send("failed", report.nodeid)


def _child(pipe: int, source: tuple[str, str] | None, tests: Sequence[str], seconds: float) -> None:
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        log = os.open(KEPT.with_name("last.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(stream, number)
        if source is not None:
            sys.meta_path.insert(0, _Finder(*source))
        reporter = _Reporter(pipe, tests, seconds)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        options = (*OPTIONS, "-x", "-o", "faulthandler_timeout=0", "-W", "ignore::pytest.PytestAssertRewriteWarning")
        code = int(pytest.main([*options, *files], plugins=[reporter]))
        reporter.send("end", str(code))
    finally:
        os._exit(code)


class _Finder:
    """Finds one module, with another source."""

    def __init__(self, file: str, source: str) -> None:
        self._name = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
        self._file, self._source = str(ROOT / file), source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._file, loader=_Loader(name, self._file, self._source))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, file: str, source: str) -> None:
        super().__init__(name, file)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)
