"""URLs of servers: the store's own parameters are taken out of the query before a driver sees the rest.

No error here quotes a URL: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import unquote, urlsplit

from amplifier_context_core.errors import ConfigError


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


def number(parameters: Mapping[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    try:
        value = float(parameters.get(name, default))
    except ValueError:
        value = float("nan")
    if not lowest <= value <= highest:
        raise ConfigError("store", f"{name} must be a number from {lowest:g} to {highest:g}")
    return value


def pool_size(parameters: Mapping[str, str], default: int) -> int:
    value = number(parameters, "pool_size", default, 1, 1_000)
    if value != int(value):
        raise ConfigError("store", "pool_size must be a whole number")
    return int(value)


def lease_ttl(parameters: Mapping[str, str]) -> float:
    return number(parameters, "lease_ttl", 30, 0.2, 86_400)
