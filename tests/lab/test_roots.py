"""Paths below a root count as exactly the root, a slash and the name, on the lines of its span."""

from __future__ import annotations

import random

from .scripted import chapter, says, user
from .test_recall import seen


def test_a_path_below_a_root_is_held_and_located_but_not_spelled() -> None:
    sight = seen([user("hi"), says("x")], [chapter("[./ = /home/a/]\nm2 Read ./src/b.py -> 9 lines")])
    assert sight.holds("home/a/src/b.py")
    assert not sight.spells("home/a/src/b.py")
    assert sight.locates("home/a/src/b.py", frozenset({"Read"}))
    assert not sight.locates("home/a/src/b.py", frozenset({"Write"}))
    assert not sight.holds("home/a/src")
    assert not sight.holds("a/src/b.py")


def test_names_shuffled_between_roots_score_below_a_twentieth() -> None:
    rng = random.Random("roots")
    roots = [f"/srv/team{number}/project" for number in range(40)]
    names = {root: [f"src/part_{rng.randrange(10**6)}/file_{n}.py" for n in range(10)] for root in roots}
    wanted = [f"{root}/{name}"[1:] for root in roots for name in names[root]]

    def share(of_root: dict[str, list[str]]) -> float:
        text = "\n".join(f"[./ = {root}/]\nm1 Read ./{' ./'.join(mine)}" for root, mine in of_root.items())
        sight = seen([user("hi")], [chapter(text)])
        return sum(sight.holds(path) for path in wanted) / len(wanted)

    shuffled = [name for of_root in names.values() for name in of_root]
    rng.shuffle(shuffled)
    assert share(names) == 1.0
    assert share({root: shuffled[10 * n : 10 * n + 10] for n, root in enumerate(roots)}) < 0.05
