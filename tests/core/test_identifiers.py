"""Identifiers: the exact spelling of what an agent comes back to, and none of the prose around it."""

from __future__ import annotations

import pytest

from amplifier_context_core.compaction.identifiers import identifiers, with_parts


@pytest.mark.parametrize(
    "name",
    [
        "src/loader/cache_core.py",
        "module.submodule",
        "call_9f31",
        "ORDER-7731",
        "anna.kim@example.com",
        "https://example.com/a/b",
        "parseHeader",
        "#12345",
        "3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_names_are_found_as_they_are_spelled(name: str) -> None:
    assert identifiers(f"then look at {name} and go on") == [name.strip("#")]


@pytest.mark.parametrize(
    "prose",
    ["The quick brown fox jumps over the lazy dog", "well-known", "e.g. or", "a/b", "</a-tag>"],
)
def test_prose_is_no_name(prose: str) -> None:
    assert identifiers(prose) == []


def test_a_megabyte_is_searched_in_one_pass() -> None:
    """Data without white space must not be searched again and again from each of its characters."""
    assert identifiers("A" * 1_000_000 + " name_1") == ["name_1"]
    assert identifiers("./" * 500_000 + " name_1")[-1] == "name_1"


def test_who_reads_a_name_has_read_its_parts() -> None:
    parts = set(with_parts(["./strategy/common.go", "GitStore.DeleteBranch", "word.or"]))
    assert {"./strategy/common.go", "strategy/common.go", "./strategy", "common.go"} <= parts
    assert {"GitStore.DeleteBranch", "GitStore", "DeleteBranch"} <= parts
    assert not {"word", "or", "go"} & parts
