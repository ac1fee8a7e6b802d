"""docs/reference.md lists every limit that a user may meet, with its value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.pages import between, read

ROOT = Path(__file__).parents[1]
CORE, SUMMARY, RECALL = "amplifier_context_core", "amplifier_context_summary", "amplifier_context_recall"
LISTED = (
    f"{CORE}/stores/validation.py:_MAX_ID_BYTES",
    f"{CORE}/messages/parsing.py:MAX_DEPTH",
    f"{CORE}/transcript/matching.py:_MAX_SKIPPED",
    f"{CORE}/rendering/rounds.py:_MAX_WAIT",
    f"{CORE}/rendering/offload.py:_MAX_JSON",
    f"{CORE}/rendering/offload.py:_MOST_NAMES",
    f"{CORE}/rendering/offload.py:_MOST_ERRORS",
    f"{CORE}/rendering/json_tables.py:MAX_CHARS",
    f"{CORE}/rendering/json_tables.py:_MAX_DEPTH",
    f"{CORE}/compaction/digest.py:_MOST_CHARS",
    f"{CORE}/compaction/states.py:_MOST_ITEMS",
    f"{CORE}/compaction/states.py:_MOST_CHARS",
    f"{CORE}/view/cache.py:MAX_BUDGETS",
    f"{CORE}/view/explain.py:_MAX_ROUNDS",
    f"{CORE}/view/session_warnings.py:_MAX_TEXTS",
    f"{CORE}/view/cache_health.py:_MAX_REQUESTS",
    f"{CORE}/view/lacking.py:_MOST_TRIED",
    f"{CORE}/events.py:_TIMEOUT",
    f"{CORE}/transcript/ranking.py:_MAX_QUERY",
    f"{CORE}/transcript/ranking.py:_MAX_TERMS",
    f"{CORE}/transcript/ranking.py:_MAX_WORDS",
    f"{CORE}/transcript/matching_lines.py:MAX_EXCERPT",
    f"{RECALL}/recall_tool.py:_MOST_MESSAGES",
    f"{RECALL}/recall_tool.py:_MOST_HITS",
    f"{RECALL}/recall_pages.py:_MOST_BYTES",
    f"{RECALL}/recall_pages.py:MAX_LINE",
    f"{CORE}/session/items.py:_MOST_CHARS",
    f"{CORE}/session/notes.py:MAX_NOTES",
    f"{CORE}/session/notes.py:MAX_OF_AGENTS",
    f"{CORE}/session/notes.py:MAX_CHARS",
    f"{CORE}/session/notes.py:_MAX_AUTHOR",
    "amplifier_context_persistent/memory_files.py:_MAX_BYTES",
    f"{CORE}/history/redactions.py:_MAX_COMPARED",
    f"{CORE}/transcript/redaction.py:_MAX_PROBES",
    f"{CORE}/cli/forget.py:_MOST_MARKS",
    f"{CORE}/cli/host_files.py:MAX_FILES",
    f"{CORE}/cli/host_files.py:TIME_LIMIT",
    f"{CORE}/cli/sessions.py:DETAILED",
    f"{CORE}/cli/views.py:_MOST_ROUNDS",
    f"{SUMMARY}/prompt.py:_MOST_CHARS",
    f"{SUMMARY}/writer.py:_MOST_PIECES",
    f"{SUMMARY}/checks.py:_MOST_CHARS",
    f"{SUMMARY}/patch.py:MAX_ITEMS",
    f"{SUMMARY}/patch.py:MAX_CHARS",
    f"{SUMMARY}/patch.py:MAX_QUOTE",
    f"{SUMMARY}/state.py:_MOST_HINTS",
    f"{CORE}/compat/compaction.py:_MAX_BLOCK_CHARS",
    f"{CORE}/compat/compaction.py:_MAX_MESSAGE_CHARS",
    f"{CORE}/compat/compaction.py:_MAX_PROMPT_CHARS",
)
"""The constants of the table's rows, in its order."""

INTERNAL = {
    f"{CORE}/transcript/matching_lines.py:_MAX_WORDS",  # that of a query's terms
    f"{CORE}/transcript/candidates.py:_MAX_LOOK_UPS",
    f"{CORE}/transcript/question_hints.py:MAX_LABEL",
    f"{CORE}/transcript/recalled.py:_MAX_ID",
    f"{CORE}/history/append_queue.py:_MAX_TURNS",
    f"{CORE}/history/redactions.py:_MAX_COST",
    f"{CORE}/history/stored.py:_MAX_READS",
    f"{CORE}/compaction/states.py:_MOST_KEY",
    f"{CORE}/compaction/speech.py:_MOST_UNCLOSED",
    f"{CORE}/rendering/json_tables.py:_MAX_RATIO",
    f"{CORE}/session/items.py:_MOST_IDS",
    f"{CORE}/session/lifecycle.py:_MAX_WAIT",
    f"{CORE}/messages/usage.py:_MOST_TOKENS",
    f"{CORE}/messages/media.py:_MAX_IMAGE_TOKENS",
    f"{CORE}/messages/count_cache.py:_MAX_COUNTS",
    f"{CORE}/view/budget.py:_MAX_WRITE_PRICE",
    f"{CORE}/view/cache.py:MAX_VIEWS",
    f"{CORE}/view/cache_health.py:_MAX_KEYS",
    f"{CORE}/view/cold_cache.py:_MAX_SINCE_ANSWER",
    f"{CORE}/view/figures.py:_MAX_MARKS",
    f"{CORE}/view/figures.py:_MAX_SIZES",
    f"{CORE}/view/measured_view.py:MOST_COMPACTIONS",
    f"{CORE}/view/measured_view.py:_MOST_TOKENS",
    f"{CORE}/view/meter.py:_MAX_MODELS",
    f"{CORE}/view/sent_views.py:_MAX_KEYS",
    f"{CORE}/view/sent_views.py:_MAX_FORMER",
    f"{CORE}/view/session_state.py:_MAX_BEHIND",
    f"{CORE}/view/usage_reports.py:_MAX_REPORTS",
    f"{SUMMARY}/checks.py:_MOST_OBJECTS",
    f"{SUMMARY}/patch.py:MAX_MARKS",
    f"{SUMMARY}/state.py:_MOST_CLOSED",
}
"""Limits that change no result a user sees: caches, batches, attempts, figures that make no sense."""


def constants() -> Iterator[tuple[str, object]]:
    """Each constant of a package that is a plain value, as `file:NAME`."""
    for folder in sorted(ROOT.glob("amplifier_context_*")):
        for path in sorted(folder.rglob("*.py")):
            if "build" in path.parts:
                continue
            for node in ast.parse(path.read_bytes()).body:
                name = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                value = getattr(node, "value", None)
                if isinstance(name, ast.Name) and isinstance(value, (ast.Constant, ast.Tuple, ast.BinOp)):
                    yield f"{path.relative_to(ROOT)}:{name.id}", getattr(value, "value", None)


def test_every_limit_is_listed_or_known_to_be_internal() -> None:
    named = {name for name, _ in constants() if re.search(r":_?(MAX|MOST)_", name)}
    of_stores = {name for name in named if "/stores/" in name or name.startswith("amplifier_context_servers/")}
    limits = named - of_stores  # of a store: batches and attempts
    assert limits - INTERNAL - set(LISTED) == set()
    assert INTERNAL - limits == set(), "gone, or listed"


def test_the_page_has_the_value_of_every_limit() -> None:
    values = dict(constants())
    rows = [row.strip("| ").split(" | ") for row in between(read("docs/reference.md"), "limits").split("\n")[2:]]
    assert len(rows) == len(LISTED)
    for name, (what, value, _) in zip(LISTED, rows, strict=True):
        assert float(value.split()[0].replace(",", "")) == values[name], f"{what}: {name} is {values[name]}"
