"""The mutants, and in a soak the recorded scores."""

import subprocess
import sys

import pytest

from tests.mutants import results
from tests.mutants.operators import mutants_of
from tests.mutants.reach import ROOT

BODY = "async def f(a: int | None, b=None):\n    "


@pytest.mark.parametrize(
    ("line", "operator", "mutated"),
    [
        ("x = a < b", "< → <=", "x = a <= b"),
        ("x = (a) not  in (b)", "not in → in", "x = (a) in (b)"),
        ("x = a is not b", "is not → is", "x = a is b"),
        ("x = a and b or b", "and → or", "x = a or b or b"),
        ("x = a + b", "+ → -", "x = a - b"),
        ("x = a[1:]", "-1", "x = a[(1 - 1):]"),
        ("x = not a", "drop not", "x = a"),
        ("x = False", "flip", "x = True"),
        ("x = a if f(b) else b", "negate", "x = a if (not (f(b))) else b"),
        ("return a, b", "return None", "return None"),
        ("await f('é', a)", "drop call", "pass"),
        ("x = 'é', a == b", "== → !=", "x = 'é', a != b"),
        ("while b: break", "continue", "while b: continue"),
    ],
)
def test_an_operator_changes_one_span_of_one_line(line: str, operator: str, mutated: str) -> None:
    source = f"{BODY}{line}\n"
    (mutant,) = (mutant for mutant in mutants_of("a.py", source) if mutant.operator == operator)
    assert mutant.applied(source) == f"{BODY}{mutated}\n"
    assert mutant.within == "f"


def test_types_logs_errors_and_text_have_no_mutants() -> None:
    lines = "x: int | None = a; log.debug(a); raise a(1); x = f'{a + b}'; 'text' + a; __slots__ = 1; return"
    assert mutants_of("a.py", BODY + lines) == []


def test_a_mutant_is_known_again_when_its_line_has_moved_and_at_import_by_its_name() -> None:
    source = f"{BODY}x = 1\n    x = 1\n"
    keys = [mutant.key for mutant in mutants_of("a.py", source)]
    assert len(set(keys)) == len(keys) == 4
    assert [mutant.key for mutant in mutants_of("a.py", f"import re\n\n{source}")] == keys
    source = "A = 1\n\n\nclass B:\n    c: int = 2\n\n    def d(self, e=3):\n        return 4\n"
    names = {mutant.text: mutant.name for mutant in mutants_of("a.py", source)}
    assert names == {"A = 1": "A", "c: int = 2": "c", "def d(self, e=3):": "d", "return 4": ""}


@pytest.mark.soak
def test_scores_are_not_lower_than_recorded() -> None:
    least, verdicts = results.read()
    assert {verdict for verdict, _ in verdicts.values()} <= {"killed", "timeout", "survived", "equivalent"}
    assert all(ground for verdict, ground in verdicts.values() if verdict == "equivalent")
    for room, score in results.scores_of(results.drawn(), verdicts).items():
        assert score.judged == score.sampled, f"{room}: run `make mutants`: {score}"
        assert round(score.share, 3) >= least[room], f"{room}: {score}"


@pytest.mark.soak
def test_killed_mutants_are_still_killed() -> None:
    command = [sys.executable, "-m", "tests.mutants", "--replay", "30"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3_000, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
