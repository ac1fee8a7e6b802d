"""Every point of the frontier is the default manager with one thing changed; the table and the picture show all."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from click.testing import CliRunner

from amplifier_context_core.compaction import tuning
from amplifier_context_testing import coding_session
from amplifier_context_testing.lab.frontier import POINTS, SHOWN, main, points

from .scripted import scale


async def test_the_constants_of_a_point_hold_while_it_is_open() -> None:
    before = tuning.TUNING
    opened = await points()[list(POINTS).index("excerpt_chars 0")].open(scale(), 10_000)
    assert tuning.TUNING.excerpt_chars == 0
    await opened.close()
    assert tuning.TUNING is before


def test_every_point_is_in_the_table_and_the_picture(tmp_path: Path) -> None:
    file, svg = tmp_path / "made.jsonl", tmp_path / "made.svg"
    file.write_text(json.dumps({"id": "made", "messages": list(coding_session(12, seed=3))}) + "\n")
    done = CliRunner().invoke(main, [str(file), "--min-messages", "0", "--part", "all", "--svg", str(svg)])
    assert done.exit_code == 0, done.output
    assert all(f"| {name} |" in done.output for name in POINTS)
    titles = [node.text for node in ElementTree.fromstring(svg.read_text()).iter() if node.tag.endswith("title")]
    assert len(titles) == len(POINTS) * len(SHOWN)
