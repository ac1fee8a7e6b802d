"""The statements sent to PostgreSQL, but for migrations. `rendered` puts the name of the schema into them.

Each change carries the guard: the session's row is updated only if its lease token (`fence`) and its last change are
those that the writer knows (`{guard}`). Nothing else is touched unless that row was updated.
"""

from __future__ import annotations

from functools import lru_cache

from psycopg import sql

_PARTS = {  # of several statements
    "guard": "key = %(key)s::bigint AND fence = %(fence)s::uuid AND change = %(last)s::bigint",
    "lease": "clock_timestamp() + %(ttl)s::float8 * interval '1 second'",
    "changed": """change = %(change)s::bigint, updated = clock_timestamp(),
        expires = clock_timestamp() + %(ttl)s::float8 * interval '1 second'""",
    "columns": "session, seq, turn, tokens, place, message, origin, extra",
    "state": "key, fence, holder, length, last_seq, change, updated IS NOT NULL",
    "row": "seq, turn, tokens, message, origin, extra",
    # New rows are sent as arrays; empty text means null.
    "arrays": """%(seqs)s::bigint[], %(turns)s::bigint[], %(tokens)s::bigint[], %(messages)b::text[],
        %(origins)b::text[], %(extras)b::text[]""",
    "tail": "session = %(key)s::bigint AND place >= %(keep)s::bigint",
    "session": "(SELECT key FROM {schema}.sessions WHERE id = %(id)s)",
    "length": "(SELECT length FROM {schema}.sessions WHERE id = %(id)s)",
}


@lru_cache(1_000)
def rendered(query: str, schema: str) -> bytes:
    """Return a statement for a schema, as bytes that psycopg sends unchanged."""
    quoted = sql.Identifier(schema).as_string()
    parts = {name: part.format(schema=quoted) for name, part in _PARTS.items()}
    return query.format(schema=quoted, **parts).encode()


# -- leases -----------------------------------------------------------------------------------------------------------

ACQUIRE = """
    INSERT INTO {schema}.sessions AS s (id, fence, holder, expires)
    VALUES (%(id)s, %(fence)s::uuid, %(holder)s, {lease})
    ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, holder = excluded.holder, expires = {lease}
    WHERE s.fence IS NULL OR s.fence IN (excluded.fence, %(former)s::uuid) OR s.expires <= clock_timestamp()
    RETURNING {state}
"""
# Skips locked rows: their holder is changing them, which renews the lease.
RENEW = """
    UPDATE {schema}.sessions AS s SET expires = {lease}
    FROM (
        SELECT o.key
        FROM {schema}.sessions o
        JOIN unnest(%(keys)s::bigint[], %(fences)s::uuid[]) AS ours (key, fence)
            ON o.key = ours.key AND o.fence = ours.fence
        FOR UPDATE OF o SKIP LOCKED
    ) AS mine
    WHERE s.key = mine.key
"""
RELEASE = """
    WITH unused AS (
        DELETE FROM {schema}.sessions WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid AND updated IS NULL
    )
    UPDATE {schema}.sessions SET fence = NULL, holder = NULL, expires = NULL
    WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid AND updated IS NOT NULL
"""
STATE = "SELECT {state} FROM {schema}.sessions WHERE id = %(id)s"

# -- changes ----------------------------------------------------------------------------------------------------------

# To many sessions at once; returns the sessions whose guard matched.
APPEND = """
    WITH s AS (
        UPDATE {schema}.sessions AS t
        SET length = t.length + g.count, last_seq = g.last_seq, size = t.size + g.size, change = g.change,
            updated = clock_timestamp(), expires = clock_timestamp() + g.ttl * interval '1 second'
        FROM unnest(%(keys)s::bigint[], %(fences)s::uuid[], %(lasts)s::bigint[], %(changes)s::bigint[],
            %(ttls)s::float8[], %(counts)s::bigint[], %(last_seqs)s::bigint[], %(sizes)s::bigint[])
            AS g (key, fence, last, change, ttl, count, last_seq, size)
        WHERE t.key = g.key AND t.fence = g.fence AND t.change = g.last
        RETURNING t.key
    ), i AS (
        INSERT INTO {schema}.entries ({columns})
        SELECT r.key, seq, turn, tokens, r.place, message, nullif(origin, ''), nullif(extra, '')
        FROM unnest(%(sessions)s::bigint[], %(places)s::bigint[], {arrays}) AS r (key, place, {row})
        WHERE r.key IN (SELECT key FROM s)
    )
    SELECT key FROM s
"""
INSERT = """
    INSERT INTO {schema}.entries ({columns})
    SELECT %(key)s::bigint, seq, turn, tokens, %(start)s::bigint + number - 1, message,
        nullif(origin, ''), nullif(extra, '')
    FROM unnest({arrays}) WITH ORDINALITY AS r ({row}, number)
"""
GUARD = "UPDATE {schema}.sessions SET {changed} WHERE {guard}"
REPLACE = """
    UPDATE {schema}.sessions
    SET length = %(length)s::bigint, last_seq = %(last_seq)s::bigint,
        covered = CASE WHEN covered <= %(keep)s::bigint THEN covered END,
        checkpoint = CASE WHEN covered <= %(keep)s::bigint THEN checkpoint END,
        size = size + %(size)s::bigint
            - (SELECT coalesce(sum(octet_length(message)), 0) FROM {schema}.entries WHERE {tail}),
        edits = edits + 1, {changed}
    WHERE {guard}
"""
ARCHIVE = """
    INSERT INTO {schema}.archive (session, {row})
    SELECT session, {row} FROM {schema}.entries
    WHERE {tail} AND NOT seq = ANY (%(staying)s::bigint[]) ORDER BY place
"""
DELETE_TAIL = """
    WITH without AS (
        DELETE FROM {schema}.vectors v USING (SELECT seq FROM {schema}.entries WHERE {tail}) AS gone
        WHERE v.session = %(key)s::bigint AND v.seq = gone.seq
    )
    DELETE FROM {schema}.entries WHERE {tail}
"""
SAVE_CHECKPOINT = """
    UPDATE {schema}.sessions SET covered = %(covered)s::bigint, checkpoint = %(data)b, {changed} WHERE {guard}
"""
FORK = """
    WITH p AS (
        SELECT * FROM {schema}.sessions
        WHERE id = %(parent)s AND updated IS NOT NULL AND length >= %(count)s::bigint
    ), s AS (
        UPDATE {schema}.sessions AS c
        SET length = %(count)s::bigint, last_seq = p.last_seq,
            size = (
                SELECT coalesce(sum(octet_length(e.message)), 0) FROM {schema}.entries e
                WHERE e.session = (SELECT key FROM p) AND e.place < %(count)s::bigint
            ),
            covered = CASE WHEN p.covered <= %(count)s::bigint THEN p.covered END,
            checkpoint = CASE WHEN p.covered <= %(count)s::bigint THEN p.checkpoint END,
            {changed}
        FROM p
        WHERE c.key = %(key)s::bigint AND c.fence = %(fence)s::uuid AND c.change = %(last)s::bigint
            AND c.updated IS NULL
        RETURNING c.key
    ), copied AS (
        INSERT INTO {schema}.entries ({columns})
        SELECT s.key, e.seq, e.turn, e.tokens, e.place, e.message, coalesce(e.origin, %(parent)s), e.extra
        FROM s, {schema}.entries e
        WHERE e.session = (SELECT key FROM p) AND e.place < %(count)s::bigint
    )
    SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM s)
"""
DELETE = "DELETE FROM {schema}.sessions WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid"
# A statement of its own: it must see what others added before the session's row was locked.
DELETE_ROWS = """
    WITH e AS (
        DELETE FROM {schema}.entries WHERE session = %(key)s::bigint
    ), a AS (
        DELETE FROM {schema}.archive WHERE session = %(key)s::bigint
    )
    DELETE FROM {schema}.vectors WHERE session = %(key)s::bigint
"""

# -- rewriting --------------------------------------------------------------------------------------------------------

# Returns for each row its seq, whether its message is another now, and by how many bytes it has grown.
_REWRITE = """
    UPDATE {schema}.TABLE AS e
    SET turn = r.turn, tokens = r.tokens, message = r.message, origin = nullif(r.origin, ''),
        extra = nullif(r.extra, '')
    FROM {schema}.TABLE old, unnest({arrays}) AS r ({row})
    WHERE old.session = %(key)s::bigint AND old.seq = r.seq AND e.session = old.session AND e.NUMBER = old.NUMBER
    RETURNING e.seq, e.message <> old.message, octet_length(e.message) - octet_length(old.message)
"""
REWRITE_ENTRIES = _REWRITE.replace("TABLE", "entries").replace("NUMBER", "place")
REWRITE_ARCHIVE = _REWRITE.replace("TABLE", "archive").replace("NUMBER", "number")
DISCARD_DERIVED = """
    WITH without AS (
        DELETE FROM {schema}.vectors WHERE session = %(key)s::bigint AND seq = ANY (%(seqs)s::bigint[])
    )
    UPDATE {schema}.sessions
    SET covered = NULL, checkpoint = NULL, size = size + %(size)s::bigint, edits = edits + 1
    WHERE key = %(key)s::bigint
"""
PARTITIONS = """
    SELECT DISTINCT c.relname
    FROM {schema}.entries e JOIN pg_class c ON c.oid = e.tableoid
    WHERE e.session = %(key)s::bigint
"""

# -- reading ----------------------------------------------------------------------------------------------------------

READ = """
    SELECT {row} FROM {schema}.entries
    WHERE session = {session}
        AND place >= CASE WHEN %(start)s::bigint < 0
            THEN greatest({length} + %(start)s::bigint, 0) ELSE %(start)s::bigint END
        AND place < CASE WHEN %(stop)s::bigint < 0
            THEN greatest({length} + %(stop)s::bigint, 0) ELSE %(stop)s::bigint END
    ORDER BY place
"""
FIND = """
    SELECT {row} FROM {schema}.entries WHERE session = {session} AND seq = ANY (%(seqs)s::bigint[]) ORDER BY place
"""
ARCHIVED = "SELECT {row} FROM {schema}.archive WHERE session = {session} ORDER BY number"
LOAD_CHECKPOINT = "SELECT checkpoint FROM {schema}.sessions WHERE id = %(id)s AND covered <= length"
SESSIONS = """
    SELECT id, length, updated, size, CASE WHEN expires > clock_timestamp() THEN holder END
    FROM {schema}.sessions WHERE updated IS NOT NULL
    ORDER BY updated DESC, key DESC
"""

# -- vectors ----------------------------------------------------------------------------------------------------------

VECTORS = "SELECT seq, digest, vector FROM {schema}.vectors WHERE session = {session} AND model = %(model)s"
EMBEDDED_MESSAGES = """
    SELECT s.key, s.edits, e.seq, e.message
    FROM {schema}.sessions s JOIN {schema}.entries e ON e.session = s.key
    WHERE s.id = %(id)s AND e.seq = ANY (%(seqs)s::bigint[])
"""
DROP_OTHER_VECTORS = """
    DELETE FROM {schema}.vectors WHERE session = %(key)s::bigint
    AND (SELECT model FROM {schema}.vectors WHERE session = %(key)s::bigint LIMIT 1) <> %(model)s
"""
# Keeps nothing if the history was edited since its messages were compared with the vectors.
SAVE_VECTORS = """
    WITH s AS (
        SELECT key FROM {schema}.sessions
        WHERE key = %(key)s::bigint AND edits = %(edits)s::bigint FOR NO KEY UPDATE
    )
    INSERT INTO {schema}.vectors AS v (session, seq, model, digest, vector)
    SELECT s.key, r.seq, %(model)s, r.digest, r.vector
    FROM s, unnest(%(seqs)s::bigint[], %(digests)s::bytea[], %(vectors)s::bytea[]) AS r (seq, digest, vector)
    ON CONFLICT (session, seq)
    DO UPDATE SET model = excluded.model, digest = excluded.digest, vector = excluded.vector
"""
