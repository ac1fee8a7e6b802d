"""A tool output that is larger than the view has room for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_context_core.rendering.offload import describe, offloaded
from tests.managers import ask, feed, new_manager
from tests.messages import size, work
from tests.threads import longest_wait_beside

RECORDS = [{"id": number, "name": f"user_{number}", "state": "open"} for number in range(500)]
LOG = [f"2026-11-22T10:00:{number % 60:02} INFO step {number}" for number in range(900)]
LOG[412] = "2026-11-22T10:00:52 ERROR cannot open /var/data/q3.db"
DIFF = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,4 @@
 import os
+import re
-import sys
"""


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (json.dumps(RECORDS), "JSON: a list of 500 objects with keys id, name, state"),
        (json.dumps({"total": 2, "rows": RECORDS}), "JSON: an object with keys total, rows (rows: 500 items)"),
        ("\n".join(map(json.dumps, RECORDS)), "JSON lines: 500 objects with keys id, name, state"),
        ("id,name\n" + "\n".join(f"{n},x" for n in range(70)), "CSV: 70 rows, columns id, name"),
        ("id\tname\n" + "\n".join(f"{n}\tx" for n in range(70)), "TSV: 70 rows, columns id, name"),
        (DIFF, "a diff of 1 files (src/a.py), 1 lines added, 1 removed"),
        ("\n".join(LOG), 'a log; 1 lines report errors: line 413 "2026-11-22T10:00:52 ERROR cannot open /var/'),
        (
            json.dumps({"stdout": "\n".join(LOG), "returncode": 0}),
            'JSON: an object with keys stdout, returncode; 1 lines report errors: line 413 "2026-11-22T10:00:52 ERROR',
        ),
        ("\n".join(f"src/module_{n}/test.py" for n in range(40)), "a listing of 40 entries"),
        ("src/a.py\nsrc/b.py\nsrc/c.py", "a listing of 3 entries"),
        ("src/a.py\nsrc/b.py", "text"),
        ("1234567", "text"),
        ('"a string of JSON"', "text"),
        ("Words, and more words. No form at all!", "text"),
        ("[not json", "text"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_output_is_described_by_its_shape(text: str, description: str) -> None:
    assert describe(text).startswith(description)


@pytest.mark.parametrize("room", [1, 10, 80, 100, 160, 200, 400])
@pytest.mark.parametrize("description", ["", "a log", "words " * 80])
def test_the_line_with_the_mark_is_whole_in_any_room(room: int, description: str) -> None:
    shown = offloaded("word\n" * 100_000, room, "m12345", description)
    assert shown.split("\n")[0] == "[500,000 characters in 100,001 lines are kept outside this view: m12345]"


def output(tokens: int) -> list[dict[str, Any]]:
    messages = work(3)
    messages[2]["content"] = "\n".join(LOG * (tokens * 4 // sum(len(line) + 1 for line in LOG) + 1))
    return messages


async def test_an_output_larger_than_the_budget_is_described_with_its_head_and_tail() -> None:
    manager = await feed(new_manager(max_tokens=16_000), output(200_000))
    view = await ask(manager, 16_000)
    shown = next(message["content"] for message in view if message["role"] == "tool")
    assert "are kept outside this view: m3]" in shown
    assert "a log; " in shown
    assert "step 0" in shown
    assert "step 899" in shown
    assert "ERROR cannot open" in shown
    assert size(view) < 16_000 * 0.10
    assert "an output too large for the view is described" in str((await manager.explain())["rounds"])


@pytest.mark.parametrize(("tokens", "above"), [(60_000, 1.0), (60_000, 0.1), (2_000, 0.1)])
async def test_a_short_form_that_a_caller_registered_is_shown_in_place_of_a_description(
    tokens: int, above: float
) -> None:
    manager = await feed(new_manager(max_tokens=16_000, offload_above=above), output(tokens))
    await manager.compact_summary("call_0", "Step 412 cannot open q3.db.")
    shown = next(message["content"] for message in await ask(manager, 16_000) if message["role"] == "tool")
    assert shown == "Step 412 cannot open q3.db."


async def test_the_whole_output_is_in_the_history_and_is_found() -> None:
    manager = await feed(new_manager(max_tokens=16_000), output(200_000))
    original = await manager.recall("m3")
    assert original is not None
    assert len(original["content"]) > 800_000
    assert (await manager.search("q3.db"))[0] == "m3"


def test_large_json_is_described_as_small_is() -> None:
    text = json.dumps([{"id": number, "name": "a longer value"} for number in range(40_000)])
    assert describe(text) == "JSON: a list of 40,000 objects with keys id, name"


@pytest.mark.parametrize(
    ("line", "is_path"),
    [
        ("src/module/test.py", True),
        ("/src/odd(1)!/files/a file.py/", True),
        ("src/a file/module/test.py", True),
        ("-rw-r--r-- 1 root root 12 Nov 22 10:00 a!.py", True),
        ("a file/test.py", False),
        ("src!/a file/test.py", False),
        ("src/a file/te!st.py", False),
        ("src//", False),
        ("/", False),
    ],
)
def test_a_line_of_a_listing_is_a_path_whose_last_names_are_plain(line: str, is_path: bool) -> None:
    assert describe("\n".join([line] * 4)) == ("a listing of 4 entries" if is_path else "text")


def test_other_threads_run_while_a_large_text_is_described() -> None:
    text = json.dumps([{"id": number, "name": "a longer value"} for number in range(100_000)])
    assert longest_wait_beside(lambda: describe(text)) < 0.4
