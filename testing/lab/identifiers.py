"""The definition of an identifier. It is independent of the core's: the measured code must not define the measure."""

from __future__ import annotations

import re

_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@#-]{4,}")
_EDGES = "./:@#-_"
_MARK = re.compile(r"[0-9/_.]|[a-z][A-Z]")


def identifiers(text: str) -> frozenset[str]:
    """Return the identifiers of a text.

    Runs of `[A-Za-z0-9_][A-Za-z0-9_./:@#-]{4,}` without punctuation at their edges, 5 to 120 characters long, that
    contain a digit, `/`, `_`, `.` or a change from lower to upper case.
    """
    stripped = {run.strip(_EDGES) for run in set(_RUN.findall(text))}
    return frozenset(name for name in stripped if 5 <= len(name) <= 120 and _MARK.search(name))
