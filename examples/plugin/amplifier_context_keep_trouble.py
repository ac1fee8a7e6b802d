"""An example plug-in: a strategy that gives up uneventful rounds first, and an observer that counts folds.

Install it (`pip install ./examples/plugin`) and name the strategy in a mount plan:

    session:
      context:
        module: context-simple
        config:
          ladder: [supersede, keep-trouble, fold, condense, drop]

docs/extending.md explains plug-ins of every kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_context_core import KeepImportant, Strategy, hookimpl

TROUBLE = ("error", "traceback", "failed", "exception", "denied")


def trouble(message: Mapping[str, Any]) -> float:
    """Importance of a message: how many words of trouble it holds."""
    text = str(message.get("content") or "").lower()
    return float(sum(text.count(word) for word in TROUBLE))


class KeepTrouble(KeepImportant):
    """Drops rounds without trouble first; what is dropped stays in history and can be recalled."""

    name = "keep-trouble"

    def __init__(self, keep: int = 20) -> None:
        super().__init__(trouble, keep)


class Plugin:
    """What the entry point names.

    Attributes:
        folds: compactions seen, by session.
    """

    def __init__(self) -> None:
        self.folds: Counter[str] = Counter()

    @hookimpl
    def amplifier_context_strategies(self) -> Mapping[str, Callable[..., Strategy]]:
        """Offer the strategy under its name."""
        return {KeepTrouble.name: KeepTrouble}

    @hookimpl
    def amplifier_context_folded(self, session_id: str) -> None:
        """Count a compaction. An observer names only the arguments it wants."""
        self.folds[session_id] += 1


plugin = Plugin()
