"""Errors of PostgreSQL and libpq in words: what happened, and what to do about it."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

# What to do, by the beginning of the SQLSTATE; the longest match counts.
_ADVICE = {
    "22": "the data cannot be stored as it is",
    "23": "the session holds an entry with the same seq already",
    "25006": "the server takes no writes (a standby?): give the URL of the primary",
    "28": "check user and password in the URL, and the server's pg_hba.conf",
    "3D": "make the database, or give the name of an existing one",
    "3F": "the schema is gone; the next call creates it again",
    "40": "try again",
    "42501": "grant the user of the URL rights on the schema, or name another one (?schema=NAME)",
    "42P01": "a table of the schema is gone; the next call creates it again",
    "53": "the server has too few resources; try again later",
    "53100": "the server's disk is full: make room there, then go on",
    "53300": "the server has too many connections: raise max_connections, or give a smaller ?pool_size=",
    "57014": "it took longer than the server may: give a larger ?statement_timeout= (seconds), or see what locks it",
    "57P03": "the server is starting or stopping: try again in a moment",
    "58": "look into the server's log",
    "XX": "look into the server's log",
}
# libpq gives no SQLSTATE for what goes wrong before there is a connection.
_PHRASES = (
    ('role "', "28"),
    ("password authentication failed", "28"),
    ("no password supplied", "28"),
    ("pg_hba.conf", "28"),
    ("does not exist", "3D"),
    ("too many", "53300"),
    ("starting up", "57P03"),
    ("shutting down", "57P03"),
)
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


def advice(sqlstate: str, otherwise: str = "nothing was changed") -> str:
    found = [start for start in _ADVICE if sqlstate.startswith(start)] if sqlstate else []
    return _ADVICE[max(found, key=len)] if found else otherwise


def state_before_connection(problem: psycopg.Error) -> str:
    """Return the SQLSTATE of an error that prevented a connection; empty if its text is unknown."""
    text = str(problem)
    return next((state for phrase, state in _PHRASES if phrase in text), problem.sqlstate or "")
