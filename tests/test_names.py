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
    "amplifier_context_servers",
)

# Names that the refactoring before 0.1.0 replaced. Module names and constants are compared in lower case.
CLASSES = """
    Addition Additions Answer Attempt Audience Batches Claim Climb Cut DigestLine Desk Disk Doubt Edit Findings Gate
    Head Held Job Kind Lent Line LineBook Lines Look Mending Narrator Note Notices Owner Pending Piece Places
    PostgresLine Proof ReadBack RedisLine Rendered Rendering Replay Responses Said Saved SavedLine Seer Shared Shelf
    Sizes Step Tail Talk Then Unconfirmed Unsound Views Watch WatchedContext
"""
NAMES = """
    afresh any_checkpoint any_count as_table breathe bring_in brought_up calls_in_words came_before carried_out
    carry_out check_alone check_within clip_floor coverable cut_off defuse digest_line echoed enter_at_once entry_of
    extra_of floor_tokens fork_away hand_out hand_over heard in_words keep_private kernel_block known_checkpoint
    known_count land landed last_climb looking make_once mark_floor mends named_after not_worth_it one_line put_aside
    put_in_place read_message rejoin remember_checkpoint remember_count reveal same_entries sendable_call set_aside
    showing skip_far_past speaks_for take_back take_in take_out take_over tell_of unbroken under_way untold with_rounds
"""
WORDS = "climb climbs climbing floor floored floors lane lanes lent rung rungs settle settled settles settling told"
MODULES = """
    addition additions addresses align desk disk echoes erase erases erasing erasures explore fence gate histories
    incoming keeping kin lent line lines look mend narrator notices opening owner part piece replaying saved shelf
    slices store_claims talk telling watch
"""
OLD = frozenset(CLASSES.split()) | frozenset(NAMES.split())
OLD_WORDS, OLD_MODULES = frozenset(WORDS.split()), frozenset(MODULES.split())
# Names that a table of the refactoring replaced in one place, and that are the ordinary word elsewhere, are not listed:
# alone, answers, any, apart, ask, asked, awaited, before, begin, body, calls, candidates, carrier, claim (of a test, of
# a provider), clear, company, covered, damaged, drop, due, end, enter, fence (of a lease), fill, fits, fitted, forget
# (an API name), found, gap, given_up, grown, head, held, holes and position (columns of SQLite), judge, kept, known,
# leave, limits, lost_to, most, moved, note, notice, patch, place, position, put, refused, replay, rest, room, row,
# source, stamp, start, stay, stored, stuck, target, turn, until, wanted, watch, where, within, words, worth.
ALLOWED = {
    "testing/replay/answer_policies.py: Answer": "exported: what a scripted model answers, an ordinary word there",
    "testing/contract/reference.py: Step": "one step of a random test, no operation of a journal",
    "tests/laws/histories.py: Step": "as above",
    "tests/laws/hostile_host.py: Step": "as above",
    "tests/laws/histories.py": "histories for hypothesis; the old module held queries of SQLite",
    "tests/items/test_payloads.py: Note": "a payload: a note that a person wrote",
    "tests/laws/test_request_messages_laws.py: Views": "a state machine of hypothesis about views",
    "tests/managers.py: Watch": "a plug-in that watches, as an ordinary word",
    "tests/manager/test_budgets_change.py: Watch": "as above",
}


def names(path: Path) -> Iterator[str]:
    """Yield the names that a file defines, and its own, without leading underscores."""
    yield path.stem.lstrip("_")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        yield from (name.lstrip("_") for name in defined(node))


def is_old(name: str) -> bool:
    """True if a name is one of the old ones, or made of one of the old words."""
    return name in OLD or not OLD_WORDS.isdisjoint(words_of(name).lower().split())


def old_names(path: Path) -> set[str]:
    """Return the old names that a file defines, and its own if that is old."""
    where = path.relative_to(ROOT).as_posix()
    found = {f"{where}: {name}" for name in names(path) if is_old(name)}
    return found | ({where} if path.stem.lstrip("_") in OLD_MODULES else set())


def test_no_old_name_is_defined() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "build" not in path.parts]
    assert len(files) > 500
    found = set[str]().union(*map(old_names, files))
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "no longer there: take these out of the list"


@pytest.mark.parametrize(
    "code",
    [
        "class Desk: ...",
        "def _kernel_block(): ...",
        "def run(heard): ...",
        "self.settled = 0",
        "class Goal:\n    settled: int = 0",
        "for rung in ladder: ...",
        "import words as take_back",
        "SPARES_SETTLED = 1",
        "Kind = str",
    ],
)
def test_an_old_name_is_found_whatever_it_names(code: str) -> None:
    assert [name for node in ast.walk(ast.parse(code)) for name in defined(node) if is_old(name.lstrip("_"))]


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
