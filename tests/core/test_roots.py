"""Roots: a chapter names the directory of its paths once, and no path below it can be mistaken for another."""

from __future__ import annotations

from amplifier_context_core.compaction.checkpoint import DigestEntry, Fact
from amplifier_context_core.compaction.digest import chapter_of
from amplifier_context_core.compaction.roots import root_of, with_full_paths
from amplifier_context_core.compaction.speech import Sentence
from amplifier_context_core.messages.tokens import approx_token_counter

HOME = "/home/anna/work/project"


def facts(*paths: str) -> list[Fact]:
    return [Fact(f"m{number} Read {path} offset=1", "9 lines", (path,)) for number, path in enumerate(paths)]


def chapter(given: list[Fact]) -> str:
    entry = DigestEntry(1, 9, "a1", tuple(given), 0, 0)
    return chapter_of([entry], approx_token_counter)[1].message["content"]


def test_paths_below_the_root_are_relative_to_it_and_the_root_is_named_once() -> None:
    text = chapter(facts(f"{HOME}/src/a.py", f"{HOME}/src/b.py", f"{HOME}/docs/c.md", "/etc/hosts"))
    assert text.count(HOME) == 1
    assert f"[./ = {HOME}/]" in text.splitlines()
    assert "m0 Read ./src/a.py offset=1 -> 9 lines; ./src/a.py" in text
    assert "m3 Read /etc/hosts" in text


def test_sentences_stay_word_for_word() -> None:
    speech = Fact("m9 assistant", "", (), (), "agent", (Sentence(f"The fault is in {HOME}/src/a.py.", 0.5),))
    assert f"m9 assistant: The fault is in {HOME}/src/a.py." in chapter([*facts(*[f"{HOME}/src/a.py"] * 9), speech])


def test_a_sign_that_a_path_of_the_chapter_begins_with_is_not_used() -> None:
    paths = [f"{HOME}/src/{n}.py" for n in range(9)]
    root = root_of([*facts(*paths), Fact("m9 Bash ./run.sh")])
    assert root is not None
    assert root.sign == "~/"
    assert root_of([*facts(*paths), Fact("m9 Bash ./run.sh ~/x ^/y")]) is None


def test_full_paths_begin_where_a_path_begins() -> None:
    assert with_full_paths("[./ = /a/]\n./x ../lib/x.py b./c ./") == "\n/a/x ../lib/x.py b./c ./"


def test_a_chapter_of_many_long_paths_takes_linear_time() -> None:
    deep = "/" + "/".join("d" * 9 for _ in range(400))
    assert root_of(facts(*[f"{deep}/{number}" for number in range(2_000)])) is not None
