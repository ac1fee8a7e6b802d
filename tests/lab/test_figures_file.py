"""The file of `replay --json`: checked before anything is measured, complete JSON at every moment."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import click
import pytest

from amplifier_context_testing.lab.figures_file import FiguresFile


def test_a_missing_folder_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"--json: .*nope/x.json cannot be written: No such file"):
        FiguresFile(tmp_path / "nope" / "x.json")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_file_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    file.chmod(0o400)
    with pytest.raises(click.ClickException, match="Permission denied"):
        FiguresFile(file)


def test_what_is_there_stays_until_there_is_something_better(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("the figures of yesterday")
    file.chmod(0o640)
    figures = FiguresFile(file)
    figures.finish()
    assert file.read_text() == "the figures of yesterday"
    figures.keep(lambda: {"of": "today"})
    figures.finish()
    assert json.loads(file.read_text()) == {"of": "today"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_is_private(tmp_path: Path) -> None:
    figures = FiguresFile(tmp_path / "x.json")
    figures.keep(dict)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "x.json"
    link.symlink_to(tmp_path / "there" / "y.json")
    figures = FiguresFile(link)
    figures.keep(lambda: {"a": 1})
    figures.finish()
    assert link.is_symlink()
    assert json.loads((tmp_path / "there" / "y.json").read_text()) == {"a": 1}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
def test_a_pipe_gets_the_last_figures_only(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    figures = FiguresFile(pipe)
    for number in range(3):
        figures.keep(lambda number=number: {"number": number})
    figures.finish()
    assert json.loads(os.read(reader, 65_536)) == {"number": 2}
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.json"
    figures = FiguresFile(file)
    figures.keep(lambda: {"good": True})
    figures.finish()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("time.monotonic", lambda: 0.0)  # too early to write again: that is for the end
    figures.keep(lambda: {"better": True})
    with pytest.raises(OSError, match="No space"):
        figures.finish()
    assert json.loads(file.read_text()) == {"good": True}
    assert list(tmp_path.iterdir()) == [file]
