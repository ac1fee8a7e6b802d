"""Addresses of servers: parameters of ours are taken out of the query before a driver sees the rest.

No error here quotes an address: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote, urlsplit

from ...errors import ConfigError


def take_parameters(address: str, own: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return an address without the parameters of ours in its query, and those.

    Raises:
        ConfigError: it is no URL of a server, gives one of ours twice, or holds a ``#`` or a second ``@``, which each
            driver reads in its own way: the end of a password may become a host, which errors name.
    """
    if "#" in address:
        raise ConfigError("store", "holds a '#'; in a name or a password it is written as %23")
    if address.partition("://")[2].partition("/")[0].count("@") > 1:
        raise ConfigError("store", "holds more than one '@'; in a name or a password it is written as %40")
    try:
        urlsplit(address)
    except ValueError as problem:
        raise ConfigError("store", f"is no address ({type(problem).__name__}); check its host and port") from None
    place, _, query = address.partition("?")
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
    return f"{place}{'?' * bool(left)}{'&'.join(left)}", taken


def number(parameters: dict[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    """Return a parameter that is a number.

    Args:
        parameters: by name.
        name: of the parameter.
        default: where it is not given.
        lowest, highest: that it may be.

    Raises:
        ConfigError: it is none, or out of range.
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
        ConfigError: it is none, or out of range.
    """
    value = number(parameters, name, default, lowest, highest)
    if value != int(value):
        raise ConfigError("store", f"{name} must be a whole number from {lowest} to {highest}")
    return int(value)
