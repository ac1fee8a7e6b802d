"""The sample of mutants, and what is recorded of each in results.json."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.mutants.operators import Mutant, compiles, mutants_of
from tests.mutants.reach import CORE, ROOT, SAMPLE

SEED = 29
RECORDED = Path(__file__).with_name("results.json")
Key = tuple[str, str, str, str, int]
# killed or timeout, and the test; survived, and how many tests ran; equivalent, and the reason
Verdict = tuple[str, str]


def drawn() -> dict[Key, Mutant]:
    """The sample of the tree as it is, room by room. An edit changes it only in the lines edited."""
    found: dict[Key, Mutant] = {}
    for room, size in SAMPLE.items():
        sources = {str(path.relative_to(ROOT)): path.read_text() for path in (CORE / room).rglob("*.py")}
        mutants = [mutant for file, source in sources.items() for mutant in mutants_of(file, source)]
        taken = 0
        for mutant in sorted(mutants, key=lambda mutant: mutant.rank(SEED)):
            if taken < size and compiles(mutant.applied(sources[mutant.file])):
                found[mutant.key] = mutant
                taken += 1
    return found


def read() -> tuple[dict[str, float], dict[Key, Verdict]]:
    """Return the least score of each room, and the verdicts."""
    if not RECORDED.exists():
        return {}, {}
    kept = json.loads(RECORDED.read_text())
    return kept["least"], {tuple(row[:5]): tuple(row[5:]) for row in kept["mutants"]}


def write(least: Mapping[str, float], verdicts: Mapping[Key, Verdict], sample: Mapping[Key, Mutant]) -> None:
    """One line a mutant. What is no longer in the sample is left out: its line has changed."""
    rows = [json.dumps([*key, *verdicts[key]], ensure_ascii=False) for key in sorted(verdicts) if key in sample]
    RECORDED.write_text('{"least": %s, "mutants": [\n%s\n]}\n' % (json.dumps(least), ",\n".join(rows)))  # noqa: UP031


class Score(NamedTuple):
    sampled: int
    judged: int
    killed: int
    equivalent: int

    @property
    def share(self) -> float:
        """Of the mutants judged, without those shown to be equivalent."""
        return self.killed / max(1, self.judged - self.equivalent)


def scores_of(sample: Mapping[Key, Mutant], verdicts: Mapping[Key, Verdict]) -> dict[str, Score]:
    found: dict[str, Score] = {}
    for room in SAMPLE:
        keys = [key for key, mutant in sample.items() if mutant.room == room]
        judged = Counter(verdicts[key][0] for key in keys if key in verdicts)
        killed = judged["killed"] + judged["timeout"]
        found[room] = Score(len(keys), judged.total(), killed, judged["equivalent"])
    return found
