"""Names that once had several meanings, or none outside this project, are not defined again (docs/glossary.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT

PRODUCT = (
    "amplifier_context_core",
    "amplifier_context_simple",
    "amplifier_context_persistent",
    "amplifier_context_summary",
    "amplifier_context_recall",
)

CLASSES = """
    Addition Additions Answer Attempt Audience Batches Claim Climb Cut Desk Disk Doubt Edit Gate Held Line
    LineBook Lines Look Mending Narrator Note Notices Owner Pending Piece Places PostgresLine Proof RedisLine
    Rendered Rendering Replay Responses Row Said Saved SavedLine Shared Shelf Sizes Step Tail Views Watch
    WatchedContext
"""
FUNCTIONS = """
    any_checkpoint any_count as_table breathe bring_in brought_up calls_in_words carry_out check_within clip_floor
    climb coverable cut_off defuse digest_line echoed entry_of extra_of floor_tokens floored hand_over
    keep_private kernel_block known_checkpoint known_count make_once mark_floor named_after put_aside put_in_place
    read_message remember_checkpoint remember_count reveal sendable_call set_aside speaks_for take_in tell_of told
"""
OLD = frozenset(CLASSES.split()) | frozenset(FUNCTIONS.split())


def definitions(path: Path) -> Iterator[str]:
    """Yield the classes and functions that a file defines, without leading underscores."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name.lstrip("_")


def test_no_old_name_is_defined() -> None:
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py") if "build" not in path.parts]
    assert len(files) > 100
    found = {f"{path.relative_to(ROOT)}: {name}" for path in files for name in definitions(path) if name in OLD}
    assert found == set()


def test_no_module_has_an_old_name() -> None:
    """`view/view.py` and its like were one flat folder of modules with private names."""
    old = {
        "additions",
        "desk",
        "erasures",
        "fence",
        "gate",
        "incoming",
        "kin",
        "lent",
        "lines",
        "mend",
        "narrator",
        "shelf",
    }
    assert {
        path.stem for folder in (*PRODUCT, "testing", "bench") for path in (ROOT / folder).rglob("*.py")
    } & old == set()
