"""The generated agent reads again exactly what an edit needs and the view lacks."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from amplifier_context_testing.checks.message_shapes import Message, calls_of
from amplifier_context_testing.lab.managers import Manager
from amplifier_context_testing.lab.thrash import EDITED, FILES, HEADS, Files, Outcome, main, thrash

from .scripted import scale, scripted

EDITS = 60


async def outcome(one: Manager, seed: int = 1) -> Outcome:
    return await thrash(one, scale(), edits=EDITS, share=0.5, seed=seed)


def reads_and_edits(history: list[Message]) -> list[tuple[str, str]]:
    return [(str(c.name), c.arguments["file_path"]) for message in history for c in calls_of(message)]


async def test_nothing_is_read_twice_where_the_view_is_the_history() -> None:
    histories: list[list[Message]] = []

    def all_of_it(history: list[Message]) -> list[Message]:
        histories[:] = [history]
        return list(history)

    found = await outcome(scripted(all_of_it))
    calls = reads_and_edits(histories[0])
    reads = [call for call in calls if call[0] == "Read"]
    assert len(reads) == len(set(reads)) == len(calls) - EDITS
    assert (found.re_reads, found.blind, found.compactions) == (0, 0, 0)
    assert found.requests == EDITS + len(reads)


async def test_each_edit_reads_again_where_the_view_holds_the_newest_round_only() -> None:
    found = await outcome(scripted(lambda history: list(history[-1:])))
    assert found.requests == 2 * EDITS
    assert found.re_reads == EDITS - len({file for file, _ in Files(1).walk(EDITS)})
    assert found.blind == 0  # the newest message is the Read
    assert found.compactions == EDITS - 1  # before each Read but the first the view shrinks to a short result


async def test_an_edit_that_lacks_its_old_text_after_a_read_is_blind() -> None:
    assert (await outcome(scripted(lambda history: list(history[:1])))).blind == EDITS


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_seed_gives_the_same_run_again(seed: int) -> None:
    newest = scripted(lambda history: list(history[-7:]))
    assert await outcome(newest, seed) == await outcome(newest, seed)
    assert await outcome(newest, seed) != await outcome(newest, seed + 2)


def test_edits_go_round_all_files_and_change_lines_that_are_like_no_others() -> None:
    files = Files(1)
    before = [line for text in files.texts for line in text]
    places = list(files.walk(200))
    assert {file for file, _ in places} == set(range(FILES))
    old, new = files.edit(*places[0])
    assert len(old) == len(new) == EDITED
    assert len({*before, *new}) == len(before) + EDITED
    assert "\n".join(new) in "\n".join(files.texts[places[0][0]])


def test_the_command_prints_a_row_for_each_manager() -> None:
    done = CliRunner().invoke(main, ["--rounds", "20", "--context", "unlimited", "--context", "context-simple"])
    assert done.exit_code == 0, done.output
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.output.splitlines()]
    assert heads == ["manager", *HEADS]
    assert [row[0] for row in rows] == ["unlimited", "context-simple"]
    assert rows[0][1:3] == ["0", "0.00"]
