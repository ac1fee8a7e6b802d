"""The replay lab: recorded sessions through any context manager, measured without a model.

    report = await measure(read_sessions([path]), [manager("context-simple")], Size(fraction=0.25))

`python -m lab` is its command; definitions are in docs/reports/evaluation.md. The lab reads identifiers, sentences
and texts with code of its own, so that no measure depends on the measured code.
"""

from .course import Size
from .figures import Figures
from .managers import Manager, Unavailable, manager
from .run import Report, Row, measure
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
