"""The parts of a ``postgresql://`` URL, with the store's own parameters taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import Field
from pydantic.dataclasses import dataclass

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.protocol import Durability

from ..leased.url import Seconds, ServerSettings, settings_of, take_parameters

_OWN = ("schema", "lease_ttl", "statement_timeout", "pool_size")
_EXPECTED = (
    "is not a URL that PostgreSQL can use; one looks like postgresql://user@host:5432/database?schema=name. "
    f"Known are {', '.join(_OWN)} and the parameters of libpq"
)
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
    parts = urlsplit(plain)
    if not (parts.netloc or parts.path.strip("/") or parts.query):
        raise ConfigError("store", _EXPECTED)
    settings = settings_of(PostgresSettings, own, url="", display_name="", durable=durability == "fsync")
    try:
        fields = conninfo_to_dict(plain)
        if not all(0 < int(port) < 65_536 for port in str(fields.get("port") or 5432).split(",")):
            raise ValueError  # libpq would report it only when it connects
        fields.setdefault("application_name", "amplifier-context")
        # Milliseconds until what was sent must be confirmed: a machine that vanished confirms nothing.
        fields.setdefault("tcp_user_timeout", round(2_000 * settings.statement_timeout))
        conninfo = make_conninfo("", **fields)
    except (psycopg.Error, ValueError, TypeError):
        raise ConfigError("store", _EXPECTED) from None  # without the text of the error: it may quote the URL
    host = fields.get("host") or fields.get("hostaddr") or "the local server"
    database = repr(fields.get("dbname") or "by default")
    name = f"PostgreSQL at {host}:{fields.get('port') or 5432}, database {database}"
    return replace(settings, url=conninfo, display_name=name)
