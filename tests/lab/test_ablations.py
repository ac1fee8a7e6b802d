"""Every variant of the table is a config the default manager takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from amplifier_context_testing import coding_session
from amplifier_context_testing.lab.ablations import VARIANTS, main, variants

from .scripted import scale


@pytest.mark.parametrize("variant", variants(), ids=list(VARIANTS))
async def test_each_variant_opens(variant: object) -> None:
    from amplifier_context_testing.lab import Manager

    assert isinstance(variant, Manager)
    await (await variant.open(scale(), 10_000)).close()


def test_it_prints_a_row_for_each_variant(tmp_path: Path) -> None:
    file = tmp_path / "made.jsonl"
    file.write_text(json.dumps({"id": "made", "messages": list(coding_session(12, seed=3))}) + "\n")
    done = CliRunner().invoke(main, [str(file), "--min-messages", "0", "--part", "all"])
    assert done.exit_code == 0, done.output
    assert all(f"| {name} |" in done.output for name in VARIANTS)
