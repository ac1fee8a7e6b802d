"""Errors of Redis in words: what happened, and what to do about it."""

from __future__ import annotations

import re

from redis import exceptions as errors

# What to do, by the error code that a reply begins with.
_ADVICE = {
    "LOADING": "the server is still loading its data: try again in a moment",
    "READONLY": "the server takes no writes (a replica?): give the URL of the master",
    "OOM": "the server has no memory left: raise maxmemory, or delete unneeded data",
    "MISCONF": "the server cannot write to its disk: make room there, then go on",
    "NOREPLICAS": "the server has too few replicas: bring them back, or lower min-replicas-to-write",
    "NOAUTH": "give user and password in the URL",
    "WRONGPASS": "check user and password in the URL",
    "NOPERM": "grant the user of the URL these rights (ACL SETUSER)",
    "MOVED": "this is a node of a cluster, which holds only some of the keys: add ?cluster=true to the URL",
    "CLUSTERDOWN": "the cluster is incomplete: check its nodes",
    "MASTERDOWN": "the master is down: wait for it, or for its successor",
    "BUSY": "a script keeps the server busy: try again",
    "TRYAGAIN": "the cluster moves the session's keys: try again",
    "WRONGTYPE": "another program wrote to a key of this session: rename or delete that key, then open it again",
    "DENIED": "the server takes connections of its own machine only: give it a password, or work there",
}
NO_DATABASES_IN_CLUSTER = "a cluster has database 0 only: leave the number out of the URL"
# What to do, by a phrase of an error that has no such code, or a misleading one. The phrases quote nothing.
_ADVICE_BY_PHRASE = {
    "DB index is out of range": "the server has no database of this number: give another in the URL, as in /0",
    "invalid DB index": "give the number of a database in the URL, as in /0",
    "SELECT is not allowed in cluster mode": NO_DATABASES_IN_CLUSTER,
    "Cluster mode is not enabled": "this is not a node of a cluster: leave cluster=true out of the URL",
    "cluster support disabled": "this is not a node of a cluster: leave cluster=true out of the URL",
    "max number of clients reached": "raise maxclients of the server, or lower pool_size in the URL",
    "without any password configured": "the server asks for no password: leave it out of the URL",
    "no password is set": "the server asks for no password: leave it out of the URL",
    "Authentication required": _ADVICE["NOAUTH"],
    "ACL failure in script": _ADVICE["NOPERM"],
    "can't run this command": _ADVICE["NOPERM"],
    "unknown command": "the server lacks a command that is needed (was it renamed?), or is not Redis",
}
_CODES: dict[type[Exception], str] = {
    errors.BusyLoadingError: "LOADING",
    errors.ReadOnlyError: "READONLY",
    errors.OutOfMemoryError: "OOM",
    errors.NoPermissionError: "NOPERM",
    errors.AuthenticationError: "WRONGPASS",
    errors.AuthorizationError: "NOAUTH",
    errors.MovedError: "MOVED",
    errors.TryAgainError: "TRYAGAIN",
    errors.ClusterDownError: "CLUSTERDOWN",
    errors.MasterDownError: "MASTERDOWN",
}
_COMMAND = re.compile(r"'([a-z|]{1,40})' command")  # in the server's text about a missing right

# Error replies that the client takes for broken connections.
REFUSALS = (
    errors.BusyLoadingError,
    errors.AuthenticationError,
    errors.AuthorizationError,
    errors.MaxConnectionsError,
)


def explain(problem: Exception) -> tuple[str, str]:
    """Return the part of an error that quotes nothing, and what to do; both empty for an unknown error."""
    text = str(problem)
    for phrase, advice in _ADVICE_BY_PHRASE.items():
        if phrase in text:
            return phrase, advice
    kinds = (code for kind, code in _CODES.items() if isinstance(problem, kind))
    code = next(kinds, text.split(" ", 1)[0])
    if code == "NOPERM" and (command := _COMMAND.search(text)):
        return f"NOPERM: {command[1]}", _ADVICE[code]
    return (code, _ADVICE[code]) if code in _ADVICE else ("", "")


def reason(problem: Exception) -> str:
    """Return why a connection could not be made, in few words and without the URL."""
    cause = problem.__cause__ or problem.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(problem).__name__
