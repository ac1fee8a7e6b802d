"""The file of `replay --json`: checked before anything is measured, complete JSON at every moment."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest

from amplifier_context_testing.lab.figures_file import FiguresFile


def test_a_missing_folder_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"--json: .*nope/x.json cannot be written: No such file"):
        FiguresFile(tmp_path / "nope" / "x.json")


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
