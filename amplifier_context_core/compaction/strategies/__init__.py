"""The strategies a ladder is made of."""

from .base import Goal, Score, Strategy
from .folding import CondenseChapters, DropChapters, FoldRounds, fold
from .outputs import ClearToolOutputs, ClipToolOutputs, SupersedeStaleReads, TruncateToolOutputs
from .windows import FitContextWindow, KeepImportant, TrimRounds

__all__ = [
    "ClearToolOutputs",
    "ClipToolOutputs",
    "CondenseChapters",
    "DropChapters",
    "FitContextWindow",
    "FoldRounds",
    "Goal",
    "KeepImportant",
    "Score",
    "Strategy",
    "SupersedeStaleReads",
    "TrimRounds",
    "TruncateToolOutputs",
    "fold",
]
