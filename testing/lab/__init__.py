"""The replay lab: recorded sessions through any context manager, measured without a model.

    report = await measure(read_sessions([path]), [manager("context-simple")], Size(fraction=0.25))

What a user pays (`caches`), what the agent would have missed (`recall`, `sentences`, `words`, `questions`), whether a
provider would take the requests (`validity`), how long it took (`timing`). Definitions: docs/evaluation.md. The lab
reads identifiers, sentences and texts by code of its own, so that no measure depends on the code it measures.
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
