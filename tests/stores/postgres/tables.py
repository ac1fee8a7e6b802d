"""Statements about the tables of a schema."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from tests.stores.servers import POSTGRES


def ask(query: str, schema: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of a statement about the tables of a schema."""
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        found = connection.execute(query.encode(), values)
        return found.fetchall() if found.description else []
