"""Judge the mutants of the sample: `make mutants ARGS="--minutes 30"`. README.md says what it is for."""

import os
import random
import subprocess
import sys
import time

os.environ["AMPLIFIER_TEST_STORES"] = "memory"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process that forks may have no threads

import click

from tests.mutants import forks, reach, results
from tests.mutants.operators import Mutant
from tests.mutants.reach import ROOT
from tests.mutants.results import Key, Verdict

SECONDS = 60.0  # at most, for the tests of a mutant
Tests = list[tuple[str, float]]  # node ids, and their usual seconds


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True, help="How long to go on.")
@click.option("--tests", type=int, default=40, show_default=True, help="At most so many for a mutant.")
@click.option("--replay", type=int, help="Only run so many killed ones again, each with its test.")
def main(minutes: float, tests: int, replay: int | None) -> None:
    """Judge sampled mutants that were not judged yet, and record the verdicts."""
    os.chdir(ROOT)
    sample, end = results.drawn(), time.monotonic() + 60 * minutes
    least, verdicts = results.read()
    if replay is not None:
        sys.exit(_replay(sample, verdicts, replay))
    judge = Judge(tests)
    for mutant in (sample[key] for key in sample if key not in verdicts):
        if time.monotonic() < end:
            verdict = judge(mutant, {test for key, (_, test) in verdicts.items() if key[0] == mutant.file})
            least, verdicts = results.read()  # a person may have edited it meanwhile
            verdicts[mutant.key] = verdict
            results.write(least, verdicts, sample)
    for room, score in results.scores_of(sample, verdicts).items():
        click.echo(f"{room}: {score}, {100 * score.share:.1f} %")


class Judge:
    def __init__(self, tests: int) -> None:
        if not reach.KEPT.exists():
            subprocess.run([sys.executable, "-m", reach.__name__], check=True)
        self._reach = reach.load()
        self._tests = tests
        self._sound: dict[str, bool] = {}
        forks.warm_up()

    def __call__(self, mutant: Mutant, killers: set[str]) -> Verdict:
        began, chosen = time.monotonic(), self._chosen(mutant, killers)
        outcome = _run(mutant, chosen)
        while outcome.verdict != "survived" and not self._is_sound(outcome.by or chosen[0][0]):
            chosen = [(test, usual) for test, usual in chosen if not test.startswith(outcome.by or chosen[0][0])]
            outcome = _run(mutant, chosen)
        by = str(outcome.ran) if outcome.verdict == "survived" else outcome.by
        click.echo(f"{time.monotonic() - began:5.1f} s {outcome.verdict:8} {mutant.file}:{mutant.line} {by}")
        return outcome.verdict, by

    def _is_sound(self, test: str) -> bool:
        """True if the test passes here without a mutant."""
        if test not in self._sound:
            self._sound[test] = forks.run(None, [(test, 5.0)], SECONDS).verdict == "survived"
            if not self._sound[test]:
                click.echo(f"fails without a mutant: {test}")
        return self._sound[test]

    def _chosen(self, mutant: Mutant, killers: set[str]) -> Tests:
        """Tests that run the line: some that killed mutants of this file, then the fastest, a function once first."""
        found = self._reach.of(mutant.file, mutant.line) or self._reach.of(mutant.file, mutant.statement)
        if mutant.name and not found:
            found = self._reach.of_name(mutant.name)
        first: Tests = []
        again: Tests = []
        seen: set[str] = set()
        for seconds, test in sorted((self._reach.seconds[test], self._reach.tests[test]) for test in found):
            function = test.partition("[")[0]
            (again if function in seen else first).append((test, seconds))
            seen.add(function)
        known = [each for each in (*first, *again) if each[0] in killers][:5]
        return list(dict.fromkeys((*known, *first, *again)))[: self._tests]


def _run(mutant: Mutant, tests: Tests) -> forks.Outcome:
    if not tests:
        return forks.Outcome("survived")
    return forks.run((mutant.file, mutant.applied((ROOT / mutant.file).read_text())), tests, SECONDS)


def _replay(sample: dict[Key, Mutant], verdicts: dict[Key, Verdict], count: int) -> int:
    """Return 1 if one of so many killed mutants survives its test now, else 0."""
    forks.warm_up()
    killed = [key for key in sample if key in verdicts and verdicts[key][0] == "killed" and verdicts[key][1]]
    survived = [
        key
        for key in random.sample(killed, min(count, len(killed)))
        if _run(sample[key], [(verdicts[key][1], 5.0)]).verdict == "survived"
    ]
    for key in survived:
        click.echo(f"survives {verdicts[key][1]}: {key}")
    return int(bool(survived))


if __name__ == "__main__":
    main()
