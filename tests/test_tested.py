"""A key, a command or an event field that is new has a test that names it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from amplifier_context_cli.app import main
from amplifier_context_core.events import EVENTS
from amplifier_context_persistent import PersistentConfig
from amplifier_context_summary import SummaryConfig
from tests.pages import between, read

TESTS = Path(__file__).parent
# These compare lists with lists, whatever is in them.
LISTS = {Path(__file__).name, "test_docs.py", "test_reference.py", "replaced.py"}
KEYS = sorted({*PersistentConfig.model_fields, *SummaryConfig.model_fields})


@cache
def named() -> frozenset[str]:
    """What tests name: whole texts, and arguments."""
    found: set[str] = set()
    for path in TESTS.rglob("*.py"):
        if path.name not in LISTS:
            found.update(*re.findall(r"""["'](\w+)["']|\b(\w+)=""", path.read_text(encoding="utf-8")))
    return frozenset(found)


def fields() -> list[str]:
    """The keys of events and of reports, as the reference lists them, those in lists and dictionaries too."""
    page = read("docs/reference.md")
    tables = (between(page, name) for name in (*EVENTS, "explain", "cache_health"))
    rows = (re.findall(r"^- `([\w.\[\]]+)` \(", table, re.MULTILINE) for table in tables)
    return sorted({row.rpartition(".")[2] for found in rows for row in found})


def test_every_key_of_the_config_is_named_by_a_test() -> None:
    assert [key for key in KEYS if key not in named()] == []


def test_every_field_of_an_event_or_a_report_is_named_by_a_test() -> None:
    assert [field for field in fields() if field not in named()] == []


@pytest.mark.parametrize("name", main.commands)
def test_every_command_is_run_by_a_test_of_commands(name: str) -> None:
    texts = (path.read_text(encoding="utf-8") for path in (TESTS / "cli").glob("test_*.py"))
    assert any(re.search(rf'(run\w*|invoke)\(.*"{name}"', text) for text in texts)
