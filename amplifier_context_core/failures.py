"""Failures of plug-ins: strategies, observers, token counters, search indexes.

The text of an exception may quote a message, and messages hold secrets. So a failure is described by the type of its
exception and the line it came from; the traceback is for the log at level DEBUG.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import PurePath

log = logging.getLogger(__name__)

Report = Callable[[str], None]
"""Takes one line that names the code that failed, how it failed, and what happens instead."""

_CORE = __name__.partition(".")[0]


def failure(problem: Exception, culprit: object) -> str:
    """Describe an exception without its text, e.g. ``failed (KeyError at my_plugin/strategies.py:17)``.

    The line is the innermost one of the package that `culprit`, a function or an object, is defined in. A class of core
    may call a plug-in's function; then it is the innermost line outside core. The traceback is logged at level DEBUG.
    """
    log.debug("a plug-in failed", exc_info=problem)
    home = _root(getattr(culprit, "__module__", None))
    lines = list(traceback.walk_tb(problem.__traceback__))
    places = [(_root(frame.f_globals.get("__name__")), frame.f_code.co_filename, number) for frame, number in lines]
    at_home = [place for place in places if place[0] == home != _CORE]
    outside = [place for place in places if place[0] != _CORE]
    where = ""
    if ranked := at_home or outside or places:
        _, file, number = ranked[-1]
        where = f" at {'/'.join(PurePath(file).parts[-2:])}:{number}"
    return f"failed ({type(problem).__name__}{where})"


def _root(module: object) -> str:
    return str(module or "").partition(".")[0]
