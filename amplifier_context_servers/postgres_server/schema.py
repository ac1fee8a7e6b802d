"""The tables in PostgreSQL, and how they are created and migrated.

A schema holds all tables. `migrations` records the applied versions. Migrations run in one transaction, under an
advisory lock, so that processes that start at the same time do not conflict. A schema that is newer than this program
is refused.

Reasons for the layout, at millions of sessions:

- `sessions` is small and hot: every append updates one row. Its id and key are the only indexed columns, and pages
  keep free space, so that these updates stay on their page and touch no index (HOT).
- A session's rows in other tables hold its `key`, 8 bytes. Its id would be in each row and in two indexes.
- `entries` only grows, and holds nearly everything. It is split by the hash of its session into 16 partitions. Vacuum,
  reindexing and copying work on a sixteenth at a time and in parallel, and partitions can be on other disks. Look-ups
  are not cheaper for it (docs/scale.md). It is split from the start because a table cannot be split later without
  rewriting it. Every statement names its sessions, so it reads and writes only their partitions.
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

_FIRST = f"""
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
    checkpoint bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN sessions.updated IS 'null: leased, but nothing was ever written';
COMMENT ON COLUMN sessions.fence IS 'the token of the lease; every change asks for it';
COMMENT ON COLUMN sessions.change IS 'name of the last change; the next one asks for it';

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

CREATE TABLE damaged (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    message text,
    extra text,
    found timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON damaged (session);

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
"""

# The words of messages, for searches: see `search`. Statistics would hold words of messages that were erased. A lookup
# reads the whole pending list. At the default of 4 MB that takes as long as reading the table; the minimum is 64 kB.
_SEARCH = """
ALTER TABLE sessions ADD COLUMN indexed bigint NOT NULL DEFAULT 0, ADD COLUMN edits bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN sessions.indexed IS 'messages in the search index, which the next search adds to';
COMMENT ON COLUMN sessions.edits IS 'changes with whatever takes messages out of the history';
CREATE TEXT SEARCH DICTIONARY stem (TEMPLATE = snowball, Language = english);
CREATE TEXT SEARCH CONFIGURATION stems (PARSER = default);
ALTER TEXT SEARCH CONFIGURATION stems ADD MAPPING FOR asciiword, word, numword WITH stem;
CREATE TABLE search (
    session bigint NOT NULL,
    place integer NOT NULL,
    part integer NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (session, place, part)
);
ALTER TABLE search ALTER COLUMN words SET STATISTICS 0;
CREATE INDEX search_words ON search USING gin (words) WITH (gin_pending_list_limit = 64);
"""

# Vectors of messages: see `vectors`. Compression would gain nothing, and statistics would outlive erased messages.
_VECTORS = """
CREATE TABLE vectors (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    model text NOT NULL,
    digest bytea NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;
ALTER TABLE vectors ALTER COLUMN vector SET STATISTICS 0, ALTER COLUMN digest SET STATISTICS 0;
"""

# ANALYZE copies texts below 1 kB into statistics, which outlive erased messages; no statement needs them. A target of 0
# keeps what is there. A change of type removes it: to the same type it rewrites no row, but resets the compression.
_STATISTICS = """
ALTER TABLE entries
    ALTER COLUMN message TYPE text, ALTER COLUMN message SET STATISTICS 0,
    ALTER COLUMN extra TYPE text, ALTER COLUMN extra SET STATISTICS 0;
ALTER TABLE archive
    ALTER COLUMN message TYPE text, ALTER COLUMN message SET STATISTICS 0,
    ALTER COLUMN extra TYPE text, ALTER COLUMN extra SET STATISTICS 0;
ALTER TABLE damaged
    ALTER COLUMN message TYPE text, ALTER COLUMN message SET STATISTICS 0,
    ALTER COLUMN extra TYPE text, ALTER COLUMN extra SET STATISTICS 0;
ALTER TABLE sessions ALTER COLUMN checkpoint TYPE bytea, ALTER COLUMN checkpoint SET STATISTICS 0;
DO $$
DECLARE
    part regclass;
BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        -- Of a table with partitions it is set for each of them: it is not passed on.
        FOR part IN SELECT relid FROM pg_partition_tree('entries') UNION ALL SELECT 'archive'::regclass LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN message SET COMPRESSION lz4', part);
        END LOOP;
    END IF;
END
$$;
"""

# Filling takes nearly twice as long with 64 kB. After it the list is merged (`PostgresSearch.index_next_batch`). Where
# the user has no right to merge it, a lookup reads at most 1 MB of it.
_PENDING = "ALTER INDEX search_words SET (gin_pending_list_limit = 1024);"
MIGRATIONS: tuple[str, ...] = (_FIRST, _SEARCH, _VECTORS, _STATISTICS, _PENDING)
"""Each migrates the schema from the version of its index to the next. Published ones never change; new ones follow."""


async def migrate(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Migrate a schema to the newest version; create it if it does not exist. Needs a connection in autocommit.

    Raises:
        StoreError: the schema is newer than this program.
        psycopg.Error: the server refused.
    """
    if await _version(connection, schema) == len(MIGRATIONS):
        return
    async with connection.transaction():
        name = f"amplifier-context {schema}"
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        found = await connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema])
        if await found.fetchone() is None:  # not IF NOT EXISTS, which needs the right to create one
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        version = await _version(connection, schema)
        for number in range(version, len(MIGRATIONS)):
            await connection.execute(MIGRATIONS[number].encode())
            await connection.execute("INSERT INTO migrations (version) VALUES (%s)", [number + 1])


async def _version(connection: psycopg.AsyncConnection[Any], schema: str) -> int:
    table = sql.Identifier(schema, "migrations")
    there = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table.as_string(connection)])
    row = await there.fetchone()
    if row is None or not row[0]:
        return 0
    found = await connection.execute(sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(table))
    row = await found.fetchone()
    version = row[0] if row else 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"schema {schema!r} is at version {version}, and this program knows {len(MIGRATIONS)}: "
            "update amplifier-context-core, or name another schema (?schema=NAME)"
        )
    return version
