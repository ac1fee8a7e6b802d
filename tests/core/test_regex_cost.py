"""Regular expressions: each reads a text in a time that grows as the text does.

A pattern with two ways to read one text tries all of them before it fails, with the GIL held.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.regexes import MAKERS, Regex, makers, regexes

FEW, MANY = 2_000, 8_000  # characters
LINEAR = 2 * MANY / FEW  # a quadratic time grows by the square of MANY / FEW
NOISE = 0.015  # seconds of the thread's processor time; what a linear pattern takes for MANY characters is a tenth

# Patterns that read few characters at once: how many, and what limits them.
PIECES = {
    "core.compaction.name_choice._LOCATION": (120, "`identifiers.LONGEST`"),
    "core.compaction.excerpts._imperative 0": (82, "`tuning.excerpt_chars`, and the mark of a cut"),
    "core.transcript.question_hints._LABEL": (80, "`MAX_LABEL`"),
}
# Patterns, and functions that make some, which meet no text of a transcript, of a model or of a query.
ELSEWHERE = {
    "core.default_paths.project_name": "the path of a folder",
    "core.rendering.lookalikes._any_of": "makes the patterns of this module when it is imported",
    "core.rendering.thinking.thinking_rule": "the name of a model",
    "servers.redis_server.client.RedisClient._check_server_settings": "the version of a server",
    "servers.redis_server.driver.RedisDriver.sessions": "the prefix of keys, of a URL",
    "core.view.view_factory.settings_in": "a key of the session's own state",
}
# Beginning, what is repeated, and end of a text. Of most patterns the worst text is of one of these kinds.
KINDS = [
    *(
        ("", one, "!")
        for one in [*"aA0_-/.,:'\"<>[({`~#*|= \t\n日。é😀", "a/", "a.", "1,", "aB1", "and, ", "<a ", "<analysis>"]
    ),
    *(("", "./@", "\t\t"), ("", " \n", "x"), ("ok", ", now", "!"), ("a", ",，再", "!")),  # noqa: RUF001
    *(("~~~", "~", "`"), ("```", "\t", "`"), ("## a", " ", "a"), ("a-1-", " ", "x"), ("a", "-1", "-error")),
    *(('"aaaaa', '"', ":"), ("[m", "1", "!")),
]


def reader(regex: Regex, length: int) -> Callable[[str], None]:
    """Return what reads a text as the product does, in pieces of at most this many characters."""

    def read(text: str) -> None:
        for piece in (text[at : at + length] for at in range(0, len(text), length)):
            given: Any = piece.encode("utf-8", "replace") if isinstance(regex.pattern.pattern, bytes) else piece
            for method in regex.methods:
                if method == "search":
                    regex.pattern.subn("" if piece is given else b"", given)
                else:
                    getattr(regex.pattern, method)(given)

    return read


def seconds(read: Callable[[str], None], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def grows_faster(read: Callable[[str], None], start: str, piece: str, end: str, few: int, many: int) -> bool:
    """True if the time to read a text grows faster than the text, in each of three attempts."""
    noise = NOISE * many / MANY
    long, short, *shorter = (start + piece * (size // len(piece)) + end for size in (many, few, few // 8, few // 32))
    if any(seconds(read, text) > 4 * noise for text in (*shorter[::-1], short)):
        return True  # so slow that the long text would take minutes
    for _ in range(3):
        taken = seconds(read, long)
        if taken < noise or taken < LINEAR * seconds(read, short):
            return False
    return True


PATTERNS = sorted(regexes().keys() - ELSEWHERE.keys())


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_reads_a_text_in_a_time_that_grows_as_the_text(name: str) -> None:
    read = reader(regexes()[name], PIECES.get(name, (2 * MANY, ""))[0])
    assert [kind for kind in KINDS if grows_faster(read, *kind, FEW, MANY)] == []


def test_what_is_listed_exists_and_a_pattern_that_parts_a_path_at_each_slash_is_found() -> None:
    assert PIECES.keys() <= regexes().keys()
    slow = re.compile(r"(?:\S*/)?[\w.@-]+(?:/[\w.@ -]+)*/?")
    assert grows_faster(reader(Regex(slow, frozenset({"fullmatch"})), 2 * MANY), "", "a/", "!", FEW // 8, MANY // 8)


def test_each_function_that_makes_a_pattern_is_listed() -> None:
    assert sorted(makers()) == sorted([*MAKERS, *(name for name in ELSEWHERE if name not in regexes())])
