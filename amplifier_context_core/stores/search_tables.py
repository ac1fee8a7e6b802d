"""The two FTS5 tables of an index, which `word_index` fills and asks."""

from __future__ import annotations

import sqlite3

TABLES = ("words", "names")
_CREATE = (
    "CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2'{0})",
    "CREATE VIRTUAL TABLE names USING fts5(text, tokenize = 'trigram'{0})",
)


def can_index(db: sqlite3.Connection) -> bool:
    """True if this build of SQLite has FTS5 with both tokenizers."""
    if sqlite3.sqlite_version_info < (3, 34):  # has no trigram
        return False
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def create_tables(db: sqlite3.Connection, options: str = "") -> None:
    for statement in _CREATE:
        db.execute(statement.format(options))
