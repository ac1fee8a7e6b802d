"""The example of a research assistant, through the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from examples.research_assistant.research_assistant import DOCUMENTS, run
from tests.pages import ROOT

pytestmark = pytest.mark.kernel


async def test_tools_fill_the_pool_and_the_model_selects_from_it_by_descriptions() -> None:
    answered, pool, queue = await run("examples.research_assistant.research_assistant:model")
    assert answered == f"From [incident] {DOCUMENTS['incident'][1]}"
    assert {item.id for item in pool} == set(DOCUMENTS)
    assert sorted(item.content for item in queue) == sorted(f"fetched {one}" for one in DOCUMENTS)


def test_the_example_runs_as_a_program() -> None:
    file = ROOT / "examples" / "research_assistant" / "research_assistant.py"
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "exhausted connection pool" in done.stdout
    assert "- [q3-earnings] Q3 earnings" in done.stdout
