"""Identifiers: the exact spelling of what an agent comes back to, and none of the prose around it."""

from __future__ import annotations

import pytest

from amplifier_context_core.compaction.identifiers import identifiers, is_identifier, with_parts


@pytest.mark.parametrize(
    "name",
    [
        "src/loader/cache_core.py",
        "cache_core",
        "module.submodule",
        "call_9f31",
        "ORDER-7731",
        "anna.kim@example.com",
        "https://example.com/a/b",
        "parseHeader",
        "v1.2.3",
        "localhost:8080",
        "#12345",
        "12345",
        "2026-01-01T00:00:00",
        "3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_names_are_found_as_they_are_spelled(name: str) -> None:
    assert identifiers(f"then look at {name} and go on") == [name.strip("#")]


@pytest.mark.parametrize("path", ["/etc/hosts", "./run_all.sh", "~/.ssh/id_ed25519", ".gitignore"])
def test_a_path_keeps_its_beginning(path: str) -> None:
    assert identifiers(f"then look at {path} and go on") == [path]


@pytest.mark.parametrize(
    "prose", ["", "The quick brown fox jumps over the lazy dog", "It is done", "well-known", "e.g. or", "a/b", "don't!"]
)
def test_prose_is_no_name(prose: str) -> None:
    assert identifiers(prose) == []


def test_each_is_named_once_in_the_order_of_its_first_appearance() -> None:
    assert identifiers("b_second a_first b_second c_third a_first") == ["b_second", "a_first", "c_third"]


@pytest.mark.parametrize("text", ["(src/a.py)", "'src/a.py'", "src/a.py,", "src/a.py:", "see src/a.py.", "-src/a.py-"])
def test_punctuation_around_a_name_is_none_of_it(text: str) -> None:
    assert identifiers(text) == ["src/a.py"]


def test_runs_too_long_for_a_name_are_data() -> None:
    assert identifiers("x1" * 60) == ["x1" * 60]
    assert identifiers("x1" * 61) == []


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_no_more_are_found_than_asked_for(limit: int) -> None:
    assert identifiers("name_1 name_2 name_3", limit) == ["name_1", "name_2", "name_3"][:limit]


def test_what_looks_given_is_a_name_and_a_word_is_not() -> None:
    assert is_identifier("a_b")
    assert is_identifier("camelCase")
    assert not is_identifier("Capital")
    assert not is_identifier("UPPER")


def test_a_megabyte_is_searched_in_one_pass() -> None:
    """Data without white space must not be searched again and again from each of its characters."""
    assert identifiers("A" * 1_000_000 + " name_1") == ["name_1"]
    assert identifiers("./" * 500_000 + " name_1")[-1] == "name_1"


def test_who_reads_a_name_has_read_its_parts() -> None:
    parts = set(with_parts(["./strategy/common.go", "GitStore.DeleteBranch", "word.or"]))
    assert {"./strategy/common.go", "strategy/common.go", "./strategy", "common.go"} <= parts
    assert {"GitStore.DeleteBranch", "GitStore", "DeleteBranch"} <= parts
    assert not {"word", "or", "go"} & parts
