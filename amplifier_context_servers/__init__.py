"""Stores on servers for the context managers: ``postgresql://…`` and ``redis://…``.

The package is a plug-in of `amplifier-context-core`: it offers its stores by the schemes of their URLs. Install it with
the extra of each server, which brings the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from amplifier_context_core.errors import ConfigError, install_command
from amplifier_context_core.plugins import hookimpl
from amplifier_context_core.stores import Durability, Store

__all__ = ["amplifier_context_stores"]

MakeStore = Callable[..., Store]


def _maker(module: str, name: str, extra: str) -> MakeStore:
    def make(url: str, *, durability: Durability = "fsync", archive: bool = True) -> Store:
        try:
            kind = getattr(import_module(f".{module}", __package__), name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").partition(".")[0] not in ("psycopg", "psycopg_pool", "redis"):
                raise
            text = f"needs a driver that is not installed: {install_command(extra, 'amplifier-context-servers')}"
            raise ConfigError("store", text) from None
        return kind.from_url(url, durability=durability, archive=archive)

    return make


@hookimpl
def amplifier_context_stores() -> Mapping[str, MakeStore]:
    """Return the makers of stores by the scheme of their URLs."""
    postgres = _maker("postgres_server.store", "PostgresStore", "postgresql")
    redis = _maker("redis_server.store", "RedisStore", "redis")
    return {"postgresql": postgres, "postgres": postgres, "redis": redis, "rediss": redis}
