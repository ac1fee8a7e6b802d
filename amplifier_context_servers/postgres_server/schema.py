"""The tables in PostgreSQL, and how they are created.

A schema holds all tables; `migrations` records its version. They are created in one transaction, under an advisory
lock, so that processes that start at the same time do not conflict. A schema of another version is refused.

Reasons for the layout, at millions of sessions:

- `sessions` is small and hot: every append updates one row. Its id and key are the only indexed columns, and pages
  keep free space, so that these updates stay on their page and touch no index (HOT).
- A session's rows in other tables hold its `key`, 8 bytes. Its id would be in each row and in two indexes.
- `entries` only grows, and holds nearly everything. It is split by the hash of its session into 16 partitions. Vacuum,
  reindexing and copying work on a sixteenth at a time and in parallel, and partitions can be on other disks. Look-ups
  are not cheaper for it (docs/reports/scale.md). It is split from the start because a table cannot be split later
  without rewriting it. Every statement names its sessions, so it reads and writes only their partitions.
- Messages are text, not jsonb: jsonb refuses an escaped NUL and lone surrogates, and does not keep the order of keys.
  JSON never holds a raw NUL, so text can hold any message.
- There are no foreign keys: they would check each row again, although every change locks its session's row anyway.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from amplifier_context_core.errors import StoreError

PARTITIONS = 16

VERSION = 7
TABLES = f"""
CREATE TABLE sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    length bigint NOT NULL DEFAULT 0,
    last_seq bigint NOT NULL DEFAULT 0,
    size bigint NOT NULL DEFAULT 0,
    change bigint NOT NULL DEFAULT 0,
    updated timestamptz,
    fence uuid,
    holder text,
    expires timestamptz,
    covered bigint,
    checkpoint bytea,
    edits bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN sessions.updated IS 'null: leased, but nothing was ever written';
COMMENT ON COLUMN sessions.fence IS 'the token of the lease; every change asks for it';
COMMENT ON COLUMN sessions.change IS 'name of the last change; the next one asks for it';
COMMENT ON COLUMN sessions.edits IS 'changes with whatever takes messages out of the history';

CREATE TABLE entries (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    turn bigint NOT NULL,
    tokens bigint NOT NULL,
    place integer NOT NULL,
    message text NOT NULL,
    origin text,
    extra text,
    PRIMARY KEY (session, place),
    UNIQUE (session, seq)
) PARTITION BY HASH (session);

CREATE TABLE archive (
    session bigint NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    seq bigint NOT NULL,
    turn bigint NOT NULL,
    tokens bigint NOT NULL,
    message text NOT NULL,
    origin text,
    extra text,
    PRIMARY KEY (session, number)
);

DO $$
BEGIN
    -- Faster than pglz at both ends, but not every server was built with it.
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        ALTER TABLE entries ALTER COLUMN message SET COMPRESSION lz4;
        ALTER TABLE archive ALTER COLUMN message SET COMPRESSION lz4;
    END IF;
    FOR part IN 0..{PARTITIONS - 1} LOOP
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF entries FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER %s)',
            'entries_' || lpad(part::text, 2, '0'), part
        );
    END LOOP;
END
$$;

CREATE TABLE vectors (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    model text NOT NULL,
    digest bytea NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;

-- ANALYZE copies texts below 1 kB into statistics, which outlive erased messages; no statement needs them.
ALTER TABLE sessions ALTER COLUMN checkpoint SET STATISTICS 0;
ALTER TABLE entries ALTER COLUMN message SET STATISTICS 0, ALTER COLUMN extra SET STATISTICS 0;
ALTER TABLE archive ALTER COLUMN message SET STATISTICS 0, ALTER COLUMN extra SET STATISTICS 0;
ALTER TABLE vectors ALTER COLUMN vector SET STATISTICS 0, ALTER COLUMN digest SET STATISTICS 0;
"""

# What brings a former version up to date. 5 is that of commit 37ba2a6, with a search index, which is in memory now.
# Both have a table of damaged rows.
FORMER = {
    5: """
DROP TABLE damaged, search;
DROP TEXT SEARCH CONFIGURATION stems;
DROP TEXT SEARCH DICTIONARY stem;
ALTER TABLE sessions DROP COLUMN indexed;
""",
    6: "DROP TABLE damaged",
}


async def create(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Create a schema if it does not exist, or bring it up to date. Needs a connection in autocommit. Raise
    `StoreError` if the schema is of another version.
    """
    if await _version(connection, schema) == VERSION:
        return
    async with connection.transaction():
        name = f"amplifier-context {schema}"
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        version = await _version(connection, schema)
        if version == VERSION:  # another process has created it
            return
        found = await connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema])
        if await found.fetchone() is None:  # not IF NOT EXISTS, which needs the right to create one
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        await connection.execute(FORMER.get(version, TABLES).encode())
        await connection.execute("INSERT INTO migrations (version) VALUES (%s)", [VERSION])


async def _version(connection: psycopg.AsyncConnection[Any], schema: str) -> int:
    """Return the version of a schema, 0 if it does not exist."""
    # Not to_regclass: it answers from a cache, which may not know yet what another process committed.
    there = await connection.execute(
        "SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'migrations'", [schema]
    )
    if not there.rowcount:
        return 0
    table = sql.Identifier(schema, "migrations")
    found = await connection.execute(sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(table))
    row = await found.fetchone()
    version = row[0] if row else 0
    if version not in (0, *FORMER, VERSION):
        advice = "update amplifier-context-servers" if version > VERSION else "open it with commit 37ba2a6 first"
        raise StoreError(
            f"schema {schema!r} is at version {version}, and this program knows {VERSION}: {advice}, "
            "or name another schema (?schema=NAME)"
        )
    return version
