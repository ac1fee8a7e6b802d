"""Checkpoints: frozen, and known by the content they cover."""

from __future__ import annotations

import pytest

from amplifier_context_core.messages.hashing import content_hash
from tests.messages import block, says, user

# -- identity by content ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        user("y"),
        says("x"),
        user([block("x")]),
        user("x", name="anna"),
        user("x", metadata={"pinned": True}),
        user("x", metadata={"timestamp": "2026", "source": "hook"}),
        user("x\ud83d"),
    ],
    ids=str,
)
def test_another_content_has_another_hash(other: dict[str, object]) -> None:
    assert content_hash(other) != content_hash(user("x"))
