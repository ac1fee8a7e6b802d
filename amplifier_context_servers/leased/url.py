"""URLs of servers: the store's own parameters are taken out of the query before a driver sees the rest.

No error here quotes a URL: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from amplifier_context_core.errors import ConfigError

S = TypeVar("S")
Seconds = Annotated[float, Field(ge=0.1, le=86_400, allow_inf_nan=False)]
ConnectSeconds = Annotated[float, Field(ge=0.1, le=600, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a driver connects to and how it behaves there. Stores with equal settings share a driver."""

    url: str = field(repr=False)  # for the client, password included: never shown
    display_name: str  # host, port and database, for messages
    durable: bool  # a change waits for the server's disk
    lease_ttl: Annotated[float, Field(ge=0.2, le=86_400, allow_inf_nan=False)] = 30  # seconds
    pool_size: Annotated[int, Field(ge=1, le=1_000)] = 10


def settings_of(kind: Callable[..., S], own: dict[str, str], **more: Any) -> S:
    """Return the settings of a URL's own parameters and what else is known. Raise `ConfigError`."""
    try:
        return kind(**own, **more)
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        raise ConfigError("store", f"{first['loc'][0]}: {first['msg']}") from None


def take_parameters(url: str, own: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return a URL without the parameters named in `own`, and those parameters.

    A ``#`` or a second ``@`` is refused: each driver reads them in its own way, and the end of a password may become a
    host, which errors name.
    """
    if "#" in url:
        raise ConfigError("store", "holds a '#'; in a name or a password it is written as %23")
    if url.partition("://")[2].partition("/")[0].count("@") > 1:
        raise ConfigError("store", "holds more than one '@'; in a name or a password it is written as %40")
    try:
        urlsplit(url)
    except ValueError as problem:
        raise ConfigError("store", f"is not a URL ({type(problem).__name__}); check its host and port") from None
    before_query, _, query = url.partition("?")
    taken: dict[str, str] = {}
    left: list[str] = []
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in own:
            left.append(pair)
        elif name in taken:
            raise ConfigError("store", f"gives {name} twice")
        else:
            taken[name] = unquote(value)
    return f"{before_query}{'?' * bool(left)}{'&'.join(left)}", taken
