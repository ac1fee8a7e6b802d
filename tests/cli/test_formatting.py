"""Texts for people: amounts, times, commands as they are typed, texts cut to columns."""

from __future__ import annotations

import shlex
import time

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_cli.app import main
from amplifier_context_cli.formatting import (
    command,
    display_width,
    fitting_end,
    padded,
    size_text,
    time_text,
    truncate,
    without_credentials,
)
from tests.cli.kept import Run


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (67_417_000, "67.4 MB"),
        (999_960, "1.0 MB"),
        (3 * 10**9, "3.0 GB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(size: int, expected: str) -> None:
    assert size_text(size) == expected


def test_a_time_is_local_and_says_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert time_text("2025-06-01T12:03:09.123Z") == "2025-06-01 14:03 +0200"
        assert time_text("2025-01-01T12:03:09+00:00") == "2025-01-01 13:03 +0100"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert time_text("") == ""
    assert time_text("unknown") == "unknown"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), max_size=3))
def test_a_command_means_what_it_says_when_it_is_typed(names: list[str]) -> None:
    """Whatever the ids are: quotes, blanks, dashes in front."""
    line = command("show", *names, options=["--full"], url="jsonl:/with a/blank")
    words = shlex.split(line.removeprefix("`").removesuffix("`"))
    assert words[:5] == ["amplifier-context", "show", "--full", "--store", "jsonl:/with a/blank"]
    verify = main.commands["verify"]
    assert list(verify.make_context("verify", words[3:]).params["names"]) == names


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jsonl:/a/b@c?d", "jsonl:/a/b@c?d"),
        ("sqlite:~/x.db", "sqlite:~/x.db"),
        ("postgresql://user:pa@ss@host:5432/db?password=secret", "postgresql://host:5432/db"),
        ("redis://:secret@host/0?prefix=x", "redis://host/0"),
        ("own:user:secret@place", "own:place"),
        ("redis://host/0", "redis://host/0"),
    ],
)
def test_a_url_is_shown_without_a_password(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
    output = command("verify", url=url)
    assert "secret" not in output
    assert ("with the same --store" in output) == (url != shown)


@given(st.text(), st.integers(1, 60))
def test_a_cut_text_fits_its_columns_and_says_where_it_was_cut(text: str, width: int) -> None:
    short = truncate(text, width)
    assert display_width(short) <= width
    assert "\n" not in short
    whole = " ".join(text.split())
    assert short == whole or (short.endswith("…") and whole.startswith(short[:-1]))


def test_wide_characters_take_two_columns() -> None:
    assert display_width("日本 e\u0301") == 6
    assert truncate("日本日本", 6) == "日本…"
    assert fitting_end("日本日本", 5) == 2
    assert padded("日", 4) == "日  "


def test_a_text_is_cut_between_words_where_that_leaves_most_of_it() -> None:
    assert truncate("several words that are long", 20) == "several words that…"
    assert truncate("x " + "y" * 40, 20) == "x " + "y" * 17 + "…"


def test_the_shell_completes_commands() -> None:
    line = {"COMP_WORDS": "amplifier-context exp", "COMP_CWORD": "1"}
    run = CliRunner().invoke(
        main, env={**line, "_AMPLIFIER_CONTEXT_COMPLETE": "bash_complete"}, prog_name="amplifier-context"
    )
    assert run.output.split() == ["plain,explain", "plain,export"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_sentences_and_checks_fit_the_screen(
    width: int, filled: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    texts = [
        run(*command, "one", "--store", filled).output
        for command in (["context"], ["compact", "--dry-run", "--budget", "5k"])
    ]
    for line in "".join(texts).split("\n"):
        assert display_width(line) <= width
    for line in run("doctor", "--store", filled).output.split("\n"):
        assert len(line) <= width or len(line.split()) <= 4, "a path stays whole, to be copied"
    assert "one has no pins" in run("pins", "one", "--store", filled).output
