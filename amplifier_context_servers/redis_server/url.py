"""The parts of a ``redis://`` URL, with the store's own parameters taken out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass
from redis import exceptions as errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores.protocol import Durability

from ..leased.url import ConnectSeconds, Seconds, ServerSettings, settings_of, take_parameters
from .errors import NO_DATABASES_IN_CLUSTER

FIXED: dict[str, Any] = {"protocol": 2, "decode_responses": False}  # settings of the client that this store relies on

_OWN = ("prefix", "cluster", "lease_ttl", "pool_size", "socket_timeout", "socket_connect_timeout")
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, kw_only=True)
class RedisSettings(ServerSettings):
    prefix: Annotated[str, Field(min_length=1, max_length=100)] = "amplifier-context"  # of all keys
    cluster: bool = False
    socket_connect_timeout: ConnectSeconds = 5
    socket_timeout: Seconds = 30
    pool_size: Annotated[int, Field(ge=1, le=1_000)] = 16


def parse_store_url(url: str, durability: Durability) -> RedisSettings:
    plain, own = take_parameters(url, (*_OWN, *FIXED))
    if not own.get("prefix", "").isprintable():
        raise ConfigError("store", "prefix must be printable")
    _check_host_and_database(plain)
    try:
        fields = dict(parse_url(plain))
        make = cast("Callable[[str], ConnectionPool]", ConnectionPool.from_url)  # pyright: ignore[reportUnknownMemberType]
        make(plain).make_connection()  # opens nothing; refuses unknown parameters
    except (errors.RedisError, ValueError, TypeError):
        raise ConfigError(  # without the text of the error: it may quote the URL
            "store", "is not a URL that Redis can use; one looks like redis://user:password@host:6379/0?prefix=name"
        ) from None
    name = f"Redis at {fields.get('host', 'localhost')}:{fields.get('port', 6379)}, database {fields.get('db', 0)}"
    own = {key: value for key, value in own.items() if key in _OWN}
    settings = settings_of(RedisSettings, own, url=plain, display_name=name, durable=durability == "fsync")
    if settings.cluster and fields.get("db"):
        raise ConfigError("store", f"names database {fields['db']}; {NO_DATABASES_IN_CLUSTER}")
    return settings


def _check_host_and_database(url: str) -> None:
    """Check what the client does not: it reads a path that is no number as database 0, and no host as this machine."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigError("store", "names no server; it looks like redis://user:password@host:6379/0?prefix=name")
    databases = [parts.path.removeprefix("/")] if parts.path not in ("", "/") else []
    databases += [pair[3:] for pair in parts.query.split("&") if pair.startswith("db=")]
    if not all(map(_NUMBER.fullmatch, databases)):
        raise ConfigError(
            "store",
            "names a database that is not a number; Redis numbers them from 0, as in redis://host:6379/0?prefix=name",
        )
