"""Every variant of the table is the default manager with one part off, on each half of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from amplifier_context_testing import coding_session
from amplifier_context_testing.lab.ablations import PAUSED, VARIANTS, main


@pytest.mark.parametrize(("flags", "expected"), [((), VARIANTS), (("--pauses",), PAUSED)], ids=["parts", "pauses"])
def test_it_prints_a_row_for_each_variant_and_half(tmp_path: Path, flags: tuple[str, ...], expected: object) -> None:
    file = tmp_path / "made.jsonl"
    made = [{"id": f"made-{n}", "messages": list(coding_session(6, seed=n))} for n in range(4)]
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    done = CliRunner().invoke(main, [str(file), "--min-messages", "0", *flags])
    assert done.exit_code == 0, done.output
    assert isinstance(expected, dict)
    for half in ("choose", "report"):
        for name in expected:
            assert any(line.startswith(f"| {half} (") and f": {name} |" in line for line in done.output.splitlines())
