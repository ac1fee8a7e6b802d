"""Revisions: random names of changes to sessions on servers."""

from __future__ import annotations

import random

from amplifier_context_servers.leased.protocol import new_revision


def test_two_processes_that_seed_random_alike_make_different_revisions() -> None:
    """By a revision, a writer finds that another one changed the session."""
    state = random.getstate()
    try:
        random.seed(0)
        first = [new_revision() for _ in range(5)]
        random.seed(0)
        assert not set(first) & {new_revision() for _ in range(5)}
        assert random.random() == 0.8444218515250481, "nor is the host's generator used"
    finally:
        random.setstate(state)
