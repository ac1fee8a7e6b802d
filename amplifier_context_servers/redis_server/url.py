"""The parts of a ``redis://`` URL, with the store's own parameters taken out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from redis import exceptions as errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.protocol import Durability

from ..leased.url import lease_ttl, number, pool_size, take_parameters
from .errors import NO_DATABASES_IN_CLUSTER

FIXED: dict[str, Any] = {"protocol": 2, "decode_responses": False}  # settings of the client that this store relies on

_OWN = ("prefix", "cluster", "lease_ttl", "pool_size", "socket_timeout", "socket_connect_timeout")
_NUMBER = re.compile(r"[0-9]{1,10}")
_LARGEST_DATABASE = 2**31 - 1  # a server's setting `databases` is an int


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where a driver connects to and how it behaves there. Stores with equal settings share a driver."""

    url: str = field(repr=False)  # for the client, password included: never shown
    display_name: str  # host, port and database, for messages
    prefix: str = "amplifier-context"  # of all keys
    cluster: bool = False
    durable: bool = True  # a change waits for the server's disk
    connect_timeout: float = 5.0  # seconds, as the next one
    timeout: float = 30.0
    pool_size: int = 16


def parse_store_url(url: str, durability: Durability) -> tuple[RedisSettings, float]:
    """Return the settings of a URL, and its `lease_ttl` in seconds."""
    plain, own = take_parameters(url, (*_OWN, *FIXED))
    prefix = own.get("prefix", "amplifier-context")
    if not prefix or not prefix.isprintable() or len(prefix) > 100:
        raise ConfigError("store", "prefix must be 1 to 100 printable characters")
    cluster = own.get("cluster", "false")
    if cluster not in ("true", "false"):
        raise ConfigError("store", "cluster must be true or false")
    _check_host_and_database(plain)
    try:
        fields = dict(parse_url(plain))
        make = cast("Callable[[str], ConnectionPool]", ConnectionPool.from_url)  # pyright: ignore[reportUnknownMemberType]
        make(plain).make_connection()  # opens nothing; refuses unknown parameters
    except (errors.RedisError, ValueError, TypeError):
        raise ConfigError(  # without the text of the error: it may quote the URL
            "store", "is not a URL that Redis can use; one looks like redis://user:password@host:6379/0?prefix=name"
        ) from None
    if cluster == "true" and fields.get("db"):
        raise ConfigError("store", f"names database {fields['db']}; {NO_DATABASES_IN_CLUSTER}")
    host, port = fields.get("host", "localhost"), fields.get("port", 6379)
    settings = RedisSettings(
        plain,
        f"Redis at {host}:{port}, database {fields.get('db', 0)}",
        prefix,
        cluster == "true",
        durability == "fsync",
        number(own, "socket_connect_timeout", 5, 0.1, 600),
        number(own, "socket_timeout", 30, 0.1, 86_400),
        pool_size(own, 16),
    )
    return settings, lease_ttl(own)


def _check_host_and_database(url: str) -> None:
    """Check what the client does not: it reads a path that is no number as database 0, and no host as this machine."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigError("store", "names no server; it looks like redis://user:password@host:6379/0?prefix=name")
    databases = [parts.path.removeprefix("/")] if parts.path not in ("", "/") else []
    databases += [pair[3:] for pair in parts.query.split("&") if pair.startswith("db=")]
    if len(databases) > 1:
        raise ConfigError("store", "gives the number of the database twice")
    if any(not _NUMBER.fullmatch(one) or int(one) > _LARGEST_DATABASE for one in databases):
        raise ConfigError(
            "store",
            "names a database that is not a number; Redis numbers them from 0, as in redis://host:6379/0?prefix=name",
        )
