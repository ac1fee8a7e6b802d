"""URLs of servers: the store's own parameters are taken out of the query before a driver sees the rest.

No error here quotes a URL: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote, urlsplit

from amplifier_context_core.errors import ConfigError


def take_parameters(url: str, own: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return a URL without the parameters named in `own`, and those parameters.

    Raises:
        ConfigError: it is no URL of a server, or gives one of these parameters twice. Or it holds a ``#`` or a second
            ``@``, which each driver reads in its own way: the end of a password may become a host, which errors name.
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


def number(parameters: dict[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    """Return a parameter that is a number.

    Args:
        parameters: by name.
        name: of the parameter.
        default: returned if the parameter is not given.
        lowest, highest: limits of the value.

    Raises:
        ConfigError: it is not a number, or out of range.
    """
    given = parameters.get(name)
    if given is None:
        return default
    try:
        value = float(given)
    except ValueError:
        value = float("nan")
    if not lowest <= value <= highest:
        raise ConfigError("store", f"{name} must be a number from {lowest:g} to {highest:g}")
    return value


def whole_number(parameters: dict[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """Return a parameter that is a number without a fraction; see `number`.

    Raises:
        ConfigError: it is not one, or out of range.
    """
    value = number(parameters, name, default, lowest, highest)
    if value != int(value):
        raise ConfigError("store", f"{name} must be a whole number from {lowest} to {highest}")
    return int(value)
