"""Addresses of servers: parameters of ours are taken out of the query before a driver sees the rest.

No error here quotes an address: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote, urlsplit, urlunsplit

from ...errors import ConfigError


def take_parameters(address: str, own: Collection[str]) -> tuple[str, dict[str, str]]:
    """An address without the parameters of ours in its query, and those.

    Raises:
        ConfigError: it is no URL, or gives one of ours twice.
    """
    try:
        parts = urlsplit(address)
    except ValueError as problem:
        raise ConfigError("store", f"is no address ({type(problem).__name__}); check its host and port") from None
    taken: dict[str, str] = {}
    left: list[str] = []
    for pair in filter(None, parts.query.split("&")):
        name, _, value = pair.partition("=")
        if name not in own:
            left.append(pair)
        elif name in taken:
            raise ConfigError("store", f"gives {name} twice")
        else:
            taken[name] = unquote(value)
    return urlunsplit(parts._replace(query="&".join(left), fragment="")), taken


def number(parameters: dict[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    """A parameter that is a number.

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
