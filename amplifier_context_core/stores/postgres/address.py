"""What a ``postgresql://`` address says, with the parameters of ours taken out."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from ...errors import ConfigError
from ..protocol import Durability
from ..servers.address import number, take_parameters, whole_number

_OWN = ("schema", "lease_ttl", "statement_timeout", "pool_size")
_USUAL = "is no address PostgreSQL can use; it looks like postgresql://user@host:5432/database?schema=name"
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer ones off without a word


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a line goes and how it behaves there. Stores with equal ones share a line.

    Attributes:
        conninfo: for libpq, password included: never shown.
        where: for people: host, port and database.
    """

    conninfo: str = field(repr=False)
    where: str
    schema: str = "amplifier_context"
    durable: bool = True
    connect_timeout: float = 5.0
    statement_timeout: float = 30.0
    pool_size: int = 10


def read_address(address: str, durability: Durability) -> tuple[PostgresAddress, float]:
    """An address, and seconds until a claim that is not renewed expires (`lease_ttl`).

    Raises:
        ConfigError: it cannot be used.
    """
    plain, own = take_parameters(address, _OWN)
    schema = own.get("schema", "amplifier_context")
    if not schema.isprintable() or "%" in schema or not 0 < len(schema.encode()) <= _LONGEST_NAME:
        raise ConfigError("store", f"schema must be a name of 1 to {_LONGEST_NAME} bytes, printable and without '%'")
    if schema.startswith("pg_"):
        raise ConfigError("store", "schema must not begin with pg_: PostgreSQL keeps such names for itself")
    _check_once(plain)
    try:
        told = conninfo_to_dict(plain)
        if not all(0 < int(port) < 65_536 for port in str(told.get("port") or 5432).split(",")):
            raise ValueError  # libpq would say so only when it connects
        told.setdefault("application_name", "amplifier-context")
        connect_timeout = number({"connect_timeout": str(told.pop("connect_timeout", 5))}, "connect_timeout", 5, 1, 600)
        conninfo = make_conninfo("", **told)
    except (psycopg.Error, ValueError, TypeError) as problem:
        if isinstance(problem, ConfigError):
            raise
        # Without the text: it may quote the address.
        raise ConfigError("store", _unknown(problem, plain) or _USUAL) from None
    host = told.get("host") or told.get("hostaddr") or "the local server"
    where = f"PostgreSQL at {host}:{told.get('port') or 5432}, database {told.get('dbname') or 'by default'!r}"
    made = PostgresAddress(
        conninfo,
        where,
        schema,
        durability == "fsync",
        connect_timeout,
        number(own, "statement_timeout", 30, 0.1, 86_400),
        whole_number(own, "pool_size", 10, 1, 1_000),
    )
    return made, number(own, "lease_ttl", 30, 0.2, 86_400)


def _check_once(address: str) -> None:
    """Check that something is given, and nothing twice: of two values libpq silently takes the later one.

    Raises:
        ConfigError: it is not so.
    """
    parts = urlsplit(address)
    if not parts.netloc and not parts.path.strip("/") and not parts.query:
        raise ConfigError("store", _USUAL)
    place = {"user": parts.username, "password": parts.password, "host": parts.hostname, "dbname": parts.path[1:]}
    given = [name for name, value in place.items() if value]
    given += [name for pair in parts.query.split("&") if (name := pair.partition("=")[0]) in place]
    for name in place:
        if given.count(name) > 1:
            raise ConfigError("store", f"gives {name} twice")


def _unknown(problem: Exception, address: str) -> str:
    """What is wrong with the parameter that libpq does not know; empty where it is something else.

    Only its name is told, and not where an '@' comes after it: then it may be a piece of a password.
    """
    found = re.search(r'invalid URI query parameter: "(\w{1,40})"', str(problem))
    if found is None or "@" in urlsplit(address).query:
        return ""
    known = [*_OWN, *(option.keyword.decode() for option in Conninfo.get_defaults())]
    near = difflib.get_close_matches(found[1], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"ours are {', '.join(_OWN)}, all others libpq's"
    return f"has a parameter {found[1]!r} that nobody knows; {hint}"
