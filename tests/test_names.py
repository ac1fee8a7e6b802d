"""Names and words that this project no longer uses: private ones, old ones, and vague ones (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import PATHS, ROOT

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


VAGUE = """
    anew anybody aside desk desks everybody kin lent mend mended mending mends nobody said shelf shelves somebody stand
    standing stands stood tell telling tells told untold who whoever whom
"""
VAGUE_WORD = re.compile(rf"\b({'|'.join(VAGUE.split())})\b", re.IGNORECASE)
REPORTING = frozenset({"critical", "debug", "echo", "error", "exception", "info", "secho", "warning"})
LOOSE_PAGES = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
FOLDERS = (*PRODUCT, "bench", "docs", "examples", "testing", "tests")


def words_of(name: str) -> str:
    """Return the words that an identifier is made of: `_readOnce` is `read Once`."""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ").strip()


def defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines. A name of another library is used and never defined here."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def reported(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node whose text a person reads: an error, a line of a log or of output, a help text."""
    if isinstance(node, ast.Raise) and node.exc:
        yield node.exc
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in REPORTING:
            yield from node.args
        yield from (keyword.value for keyword in node.keywords if keyword.arg in ("help", "epilog", "metavar"))


def python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield names, comments, docstrings and reported texts, by line. Other strings are data: messages of fake users."""
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 1)
        yield from ((line, words_of(name)) for name in defined(node))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield line, ast.get_docstring(node) or ""
        for part in reported(node):
            strings = (one for one in ast.walk(part) if isinstance(one, ast.Constant) and isinstance(one.value, str))
            yield from ((string.lineno, str(string.value)) for string in strings)
    lines = iter(text.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    yield from ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def page_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page without its code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub("`[^`]*`", "", line)


def vague(path: Path) -> set[str]:
    """Return the vague words of a file, each with its line."""
    text = path.read_text(encoding="utf-8")
    if not VAGUE_WORD.search(words_of(text)):  # to parse every file takes ten seconds
        return set()
    prose = python_prose(text) if path.suffix == ".py" else page_prose(text)
    return {
        f"{path.relative_to(ROOT).as_posix()}:{line}: {found[0]}"
        for line, words in prose
        for found in VAGUE_WORD.finditer(words)
    }


def test_no_vague_word_is_in_a_page() -> None:
    assert set[str]().union(*map(vague, (*PATHS, *LOOSE_PAGES))) == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_vague_word_is_in_a_name_a_comment_or_a_message(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if "build" not in path.parts]
    assert files
    assert set[str]().union(*map(vague, files)) == set()


@pytest.mark.parametrize(
    "code",
    [
        "def told(): ...",
        "class Desk: ...",
        "def run(nobody): ...",
        "said = 1",
        "self.mended = 1",
        "import words as kin",
        "import words  # whoever wrote it",
        "def run():\n    'Make it anew.'",
        "raise ValueError(f'{name} stands in it')",
        "log.warning('%s was told', name)",
        "option('--x', help='Who reads it.')",
    ],
)
def test_a_vague_word_is_found_wherever_prose_is(code: str) -> None:
    assert len([words for _, words in python_prose(code) if VAGUE_WORD.search(words)]) == 1


def test_texts_quoted_as_data_are_left_alone() -> None:
    assert not any(VAGUE_WORD.search(words) for _, words in python_prose("add(user('Tell me.')); at = file.tell()"))
    assert not any(VAGUE_WORD.search(words) for _, words in page_prose("The role `nobody`.\n```text\nTell me.\n```"))
