"""Errors of PostgreSQL and libpq in words: what happened, and what to do about it."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

# What to do, by the beginning of the SQLSTATE; the longest match counts.
_ADVICE = {
    "22": "the data cannot be stored as it is",
    "23": "the session holds an entry with the same seq already",
    "25006": "the server takes no writes (a standby?): give the URL of the primary",
    "3F": "the schema is gone; the next call creates it again",
    "40": "try again",
    "42501": "grant the user of the URL rights on the schema, or name another one (?schema=NAME)",
    "42P01": "a table of the schema is gone; the next call creates it again",
    "53": "the server has too few resources; try again later",
    "53100": "the server's disk is full: make room there, then go on",
    "57014": "it took longer than the server may: give a larger ?statement_timeout= (seconds), or see what locks it",
    "58": "look into the server's log",
    "XX": "look into the server's log",
}
_QUOTABLE = ("08", "25", "28", "3D", "3F", "42", "53", "54", "55", "57", "58", "XX")  # classes that quote no data


def name_of(problem: psycopg.Error) -> str:
    return f"{type(problem).__name__} ({problem.sqlstate})" if problem.sqlstate else type(problem).__name__


def server_text(problem: psycopg.Error) -> str:
    """Return the server's own text, if it cannot quote a message; otherwise nothing."""
    if not (problem.sqlstate.startswith(_QUOTABLE) if problem.sqlstate else isinstance(problem, pg.OperationalError)):
        return ""
    # After its first line libpq explains what the error may mean, or lists its other attempts.
    lines = (problem.diag.message_primary or str(problem)).strip().splitlines()
    return f": {lines[0].strip()[:300]}" if lines else ""


def advice(sqlstate: str) -> str:
    found = [start for start in _ADVICE if sqlstate.startswith(start)]
    return _ADVICE[max(found, key=len)] if found else "nothing was changed"
