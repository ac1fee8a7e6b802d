"""The page of hosts: every row names a test that there is, and every test of hosts is named by a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import between, read

ROOT = Path(__file__).parents[1]
PAGE = read("docs/hosts.md")
HOME = "tests/kernel/test_hosts.py"


def defined_in(file: str) -> set[str]:
    """Names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.M))


def named() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each row's access and its tests: file and name."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for table in ("hosts", "loops", "offered", "used"):
        for line in between(PAGE, table).split("\n")[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            file, tests = HOME, list[tuple[str, str]]()
            for word in re.findall(r"`([^`]+)`", cells[-1]):
                if word.endswith(".py"):
                    file = word
                else:
                    tests.append((file, word))
                    file = HOME
            found.append((cells[0], tests))
    return found


@pytest.mark.parametrize("row", named(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:40])
def test_every_row_names_a_test_that_there_is(row: tuple[str, list[tuple[str, str]]]) -> None:
    assert row[1]
    for file, name in row[1]:
        assert name in defined_in(file), f"{file} has no {name}"


def test_every_test_of_hosts_is_named_by_a_row() -> None:
    assert defined_in(HOME) == {name for _, tests in named() for file, name in tests if file == HOME}
