"""The replay lab: recorded sessions through any context manager, measured without a model.

    report = await measure(read_sessions([path]), [manager("context-simple")], Size(fraction=0.25))

It measures what a user pays (`caches`), what the agent would have missed (`recall`, `sentences`, `words`,
`questions`), whether a provider would accept the requests (`validity`), and the time (`timing`). Definitions:
docs/reports/evaluation.md. The lab reads identifiers, sentences and texts with its own code, so that no measure depends
on the measured code.
"""

from .course import Size
from .figures import Figures
from .managers import Manager, Unavailable, manager
from .run import Extras, Report, Row, measure
from .sessions import Session, read_sessions

__all__ = [
    "Extras",
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
