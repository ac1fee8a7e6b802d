"""Which tests run which line of a room: collected once by coverage.py, and kept in build/ until it is deleted."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "amplifier_context_core"
# How many mutants of each room are sampled: 600, by lines when the sample was first drawn, at least 60 each.
SAMPLE = {"compaction": 125, "history": 60, "rendering": 71, "view": 201, "messages": 60, "transcript": 83}
KEPT = ROOT / "build" / "mutants" / "reach.json"
SUITE = ("tests/core", "tests/laws", "tests/manager")
# The marks of `make check`. The tests of the architecture read the source on disk, which no mutant changes.
OPTIONS = ("-q", "-p", "no:cacheprovider", "-m", "not soak and not kernel and not postgres and not redis")


@dataclass
class Reach:
    tests: list[str]  # node ids
    seconds: list[float]  # of each test, while traced
    lines: dict[str, dict[int, list[int]]]  # file → line → tests
    sources: dict[str, list[str]]  # file → the lines that were traced

    def of(self, file: str, line: int) -> set[int]:
        return set(self.lines.get(file, {}).get(line, ()))

    def of_name(self, name: str) -> set[int]:
        """The tests that run a line on which this name is written: a constant, a field, a function."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        found: set[int] = set()
        for file, lines in self.lines.items():
            path = ROOT / file
            for number, text in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
                if number in lines and word.search(text):
                    found.update(lines[number])
        return found


class _Collector:
    """A plug-in of pytest: each test is a context of its own."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._tracer.switch_context(item.nodeid)
        result = yield
        self._tracer.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def collect() -> None:
    """Run the suite with coverage.py: ten minutes. Failing and skipped tests are left out."""
    import coverage  # not where mutants are run

    tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{CORE}/{room}/*" for room in SAMPLE])
    collector = _Collector(tracer)
    os.chdir(ROOT)
    tracer.start()
    pytest.main([*OPTIONS, "-o", "faulthandler_timeout=0", *SUITE], plugins=[collector])
    tracer.stop()
    tests = [test for test in collector.seconds if test not in collector.failed]
    number = {test: index for index, test in enumerate(tests)}
    data = tracer.get_data()
    lines = {
        str(Path(file).relative_to(ROOT)): {
            line: sorted(number[test] for test in contexts if test in number)
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    seconds = [round(collector.seconds[test], 4) for test in tests]
    reach = Reach(tests, seconds, lines, {file: (ROOT / file).read_text().splitlines() for file in lines})
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(vars(reach)))


def load() -> Reach:
    """Return what was collected, for the lines as they are now: a line that is new is run by no test."""
    kept: dict[str, Any] = json.loads(KEPT.read_text())
    lines = {file: _moved(file, kept["sources"][file], by) for file, by in kept.pop("lines").items()}
    return Reach(lines=lines, **kept)


def _moved(file: str, former: list[str], by: dict[str, list[int]]) -> dict[int, list[int]]:
    path = ROOT / file
    now = path.read_text().splitlines() if path.exists() else []
    blocks = SequenceMatcher(None, former, now, autojunk=False).get_matching_blocks()
    moved = {block.a + at + 1: block.b + at + 1 for block in blocks for at in range(block.size)}
    return {moved[int(line)]: tests for line, tests in by.items() if int(line) in moved}


if __name__ == "__main__":
    collect()
