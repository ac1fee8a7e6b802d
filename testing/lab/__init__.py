"""The replay lab: recorded sessions through any context manager, measured without a model.

    report = await measure(read_sessions([path]), [manager("context-simple")], Size(fraction=0.25))

What a user pays (`cost`), what the agent would have missed (`recall`, `probes`, `evidence`), whether a provider would
take the requests (`validity`), how long it took (`timing`). Definitions: docs/evaluation.md. The lab reads identifiers
and texts by code of its own: a judge does not ask the accused.
"""

from .figures import Figures
from .managers import Manager, Unavailable, manager
from .run import Report, Row, Size, measure
from .sessions import Session, read_sessions

__all__ = [
    "Figures",
    "Manager",
    "Report",
    "Row",
    "Session",
    "Size",
    "Unavailable",
    "manager",
    "measure",
    "read_sessions",
]
