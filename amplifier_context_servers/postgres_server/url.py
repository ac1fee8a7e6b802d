"""The parts of a ``postgresql://`` URL, with the store's own parameters taken out."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from pydantic import Field
from pydantic.dataclasses import dataclass

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.protocol import Durability

from ..leased.url import Seconds, ServerSettings, settings_of, take_parameters

_OWN = ("schema", "lease_ttl", "statement_timeout", "pool_size")
_EXPECTED = "is not a URL that PostgreSQL can use; one looks like postgresql://user@host:5432/database?schema=name"
_LONGEST_NAME = 63  # bytes; PostgreSQL silently truncates longer names (NAMEDATALEN)


@dataclass(frozen=True, kw_only=True)
class PostgresSettings(ServerSettings):
    schema: str = "amplifier_context"
    connect_timeout: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 5  # seconds, as the next one
    statement_timeout: Seconds = 30


def parse_store_url(url: str, durability: Durability) -> PostgresSettings:
    plain, own = take_parameters(url, (*_OWN, "connect_timeout"))
    schema = own.get("schema", "amplifier_context")
    if not schema.isprintable() or "%" in schema or not 0 < len(schema.encode()) <= _LONGEST_NAME:
        raise ConfigError("store", f"schema must be a name of 1 to {_LONGEST_NAME} bytes, printable and without '%'")
    if schema.startswith("pg_"):
        raise ConfigError("store", "schema must not begin with pg_: PostgreSQL reserves such names")
    _check_once(plain)
    settings = settings_of(PostgresSettings, own, url="", display_name="", durable=durability == "fsync")
    try:
        fields = conninfo_to_dict(plain)
        if not all(0 < int(port) < 65_536 for port in str(fields.get("port") or 5432).split(",")):
            raise ValueError  # libpq would report it only when it connects
        fields.setdefault("application_name", "amplifier-context")
        # Milliseconds until what was sent must be confirmed: a machine that vanished confirms nothing.
        fields.setdefault("tcp_user_timeout", round(2_000 * settings.statement_timeout))
        conninfo = make_conninfo("", **fields)
    except (psycopg.Error, ValueError, TypeError) as problem:
        # Without the text of the error: it may quote the URL.
        raise ConfigError("store", _unknown_parameter(problem, plain) or _EXPECTED) from None
    host = fields.get("host") or fields.get("hostaddr") or "the local server"
    database = repr(fields.get("dbname") or "by default")
    name = f"PostgreSQL at {host}:{fields.get('port') or 5432}, database {database}"
    return replace(settings, url=conninfo, display_name=name)


def _check_once(url: str) -> None:
    """Check that the URL gives something, and nothing twice: of two values libpq silently takes the later one."""
    parts = urlsplit(url)
    if not parts.netloc and not parts.path.strip("/") and not parts.query:
        raise ConfigError("store", _EXPECTED)
    fields = {"user": parts.username, "password": parts.password, "host": parts.hostname, "dbname": parts.path[1:]}
    given = [name for name, value in fields.items() if value]
    given += [name for pair in parts.query.split("&") if (name := pair.partition("=")[0]) in fields]
    for name in fields:
        if given.count(name) > 1:
            raise ConfigError("store", f"gives {name} twice")


def _unknown_parameter(problem: Exception, url: str) -> str:
    """Return what is wrong with a parameter that libpq does not know; empty if the problem is another.

    The text quotes only the parameter's name. It quotes nothing if an '@' follows in the query: then the name may be
    a piece of a password.
    """
    found = re.search(r'invalid URI query parameter: "(\w{1,40})"', str(problem))
    if found is None or "@" in urlsplit(url).query:
        return ""
    known = [*_OWN, *(option.keyword.decode() for option in Conninfo.get_defaults())]
    near = difflib.get_close_matches(found[1], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_OWN)} and the parameters of libpq"
    return f"has an unknown parameter {found[1]!r}; {hint}"
