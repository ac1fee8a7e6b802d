"""The statements sent to PostgreSQL, but for migrations, with their tables in one schema.

Each change carries the guard: the session's row is updated only if its lease token (`fence`) and its last change are
those that the writer knows (`{guard}`). Nothing else is touched unless that row was updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

_TABLES = ("sessions", "entries", "archive", "damaged", "search", "vectors")

# Parts of several statements.
_PARTS: dict[str, LiteralString] = {
    "guard": "key = %(key)s::bigint AND fence = %(fence)s::uuid AND change = %(last)s::bigint",
    "lease": "clock_timestamp() + %(ttl)s::float8 * interval '1 second'",
    "changed": """change = %(change)s::bigint, updated = clock_timestamp(),
        expires = clock_timestamp() + %(ttl)s::float8 * interval '1 second'""",
    "grown": "length = length + %(count)s::bigint, last_seq = %(last_seq)s::bigint, size = size + %(size)s::bigint",
    "grown_by_one": """length = length + 1, last_seq = greatest(last_seq, %(seq)s::bigint),
        size = size + %(size)s::bigint""",
    "columns": "session, seq, turn, tokens, place, message, origin, extra",
    "row": "seq, turn, tokens, message, origin, extra",
    # The new rows are sent as arrays; empty text means null.
    "rows": """unnest(%(seqs)s::bigint[], %(turns)s::bigint[], %(tokens)s::bigint[], %(messages)b::text[],
        %(origins)b::text[], %(extras)b::text[])""",
    "values": """%(key)s::bigint, seq, turn, tokens, %(start)s::bigint + number - 1, message,
        nullif(origin, ''), nullif(extra, '')""",
    "tail": "session = %(key)s::bigint AND place >= %(keep)s::bigint",
}


class Statements:
    """The statements of a schema, as bytes that psycopg sends unchanged."""

    def __init__(self, schema: str) -> None:
        self._names: dict[str, sql.Composable] = {name: sql.Identifier(schema, name) for name in _TABLES}
        self._names |= {name: sql.SQL(part) for name, part in _PARTS.items()}
        self._names["session_key"] = sql.SQL("(SELECT key FROM {sessions} WHERE id = %(id)s)").format(**self._names)
        self._names["session_length"] = sql.SQL("(SELECT length FROM {sessions} WHERE id = %(id)s)").format(
            **self._names
        )
        self._add_leases()
        self._add_appends()
        self._add_changes()
        self._add_rewrites()
        self._add_reads()
        self._add_checks()
        self._add_search(schema)
        self._add_vectors()

    def _render(self, text: LiteralString) -> bytes:
        return sql.SQL(text).format(**self._names).as_bytes(None)

    def _add_leases(self) -> None:
        self.acquire = self._render("""
            INSERT INTO {sessions} AS s (id, fence, holder, expires)
            VALUES (%(id)s, %(fence)s::uuid, %(holder)s, {lease})
            ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, holder = excluded.holder, expires = {lease}
            WHERE s.fence IS NULL OR s.fence IN (excluded.fence, %(former)s::uuid) OR s.expires <= clock_timestamp()
            RETURNING key, length, last_seq, change, updated IS NOT NULL
        """)
        self.holder = self._render("SELECT holder FROM {sessions} WHERE id = %(id)s")
        # Skips locked rows: their holder is changing them, which renews the lease.
        self.renew = self._render("""
            UPDATE {sessions} AS s SET expires = {lease}
            FROM (
                SELECT o.key
                FROM {sessions} o
                JOIN unnest(%(keys)s::bigint[], %(fences)s::uuid[]) AS ours (key, fence)
                    ON o.key = ours.key AND o.fence = ours.fence
                FOR UPDATE OF o SKIP LOCKED
            ) AS mine
            WHERE s.key = mine.key
        """)
        self.release = self._render("""
            WITH unused AS (
                DELETE FROM {sessions} WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid AND updated IS NULL
            )
            UPDATE {sessions} SET fence = NULL, holder = NULL, expires = NULL
            WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid AND updated IS NOT NULL
        """)
        self.state = self._render("SELECT fence, holder, change, length, last_seq FROM {sessions} WHERE id = %(id)s")

    def _add_appends(self) -> None:
        # Appends to many sessions at once; returns the sessions whose guard matched.
        self.append_many = self._render("""
            WITH s AS (
                UPDATE {sessions} AS t
                SET length = t.length + g.count, last_seq = g.last_seq, size = t.size + g.size, change = g.change,
                    updated = clock_timestamp(), expires = clock_timestamp() + g.ttl * interval '1 second'
                FROM unnest(%(keys)s::bigint[], %(fences)s::uuid[], %(lasts)s::bigint[], %(changes)s::bigint[],
                    %(ttls)s::float8[], %(counts)s::bigint[], %(last_seqs)s::bigint[], %(sizes)s::bigint[])
                    AS g (key, fence, last, change, ttl, count, last_seq, size)
                WHERE t.key = g.key AND t.fence = g.fence AND t.change = g.last
                RETURNING t.key
            ), i AS (
                INSERT INTO {entries} ({columns})
                SELECT r.key, r.seq, r.turn, r.tokens, r.place, r.message, nullif(r.origin, ''), nullif(r.extra, '')
                FROM unnest(%(sessions)s::bigint[], %(places)s::bigint[], %(seqs)s::bigint[], %(turns)s::bigint[],
                    %(tokens)s::bigint[], %(messages)b::text[], %(origins)b::text[], %(extras)b::text[])
                    AS r (key, place, seq, turn, tokens, message, origin, extra)
                WHERE r.key IN (SELECT key FROM s)
            )
            SELECT key FROM s
        """)
        # One message, mostly one without extra fields: as little as possible is sent.
        self.append_one = self._render("""
            WITH s AS (
                UPDATE {sessions} SET {grown_by_one}, {changed} WHERE {guard} RETURNING key, length - 1 AS place
            )
            INSERT INTO {entries} (session, seq, turn, tokens, place, message)
            SELECT key, %(seq)s::bigint, %(turn)s::bigint, %(token)s::bigint, place, %(message)s FROM s
        """)
        self.append_one_with_extra = self._render("""
            WITH s AS (
                UPDATE {sessions} SET {grown_by_one}, {changed} WHERE {guard} RETURNING key, length - 1 AS place
            )
            INSERT INTO {entries} ({columns})
            SELECT key, %(seq)s::bigint, %(turn)s::bigint, %(token)s::bigint, place, %(message)s,
                nullif(%(origin)s, ''), nullif(%(extra)s, '')
            FROM s
        """)
        self.append = self._render("""
            WITH s AS (UPDATE {sessions} SET {grown}, {changed} WHERE {guard} RETURNING key)
            INSERT INTO {entries} ({columns})
            SELECT {values}
            FROM {rows} WITH ORDINALITY AS r (seq, turn, tokens, message, origin, extra, number)
            WHERE EXISTS (SELECT FROM s)
        """)
        self.insert = self._render("""
            INSERT INTO {entries} ({columns})
            SELECT {values} FROM {rows} WITH ORDINALITY AS r (seq, turn, tokens, message, origin, extra, number)
        """)

    def _add_changes(self) -> None:
        self.guard = self._render("UPDATE {sessions} SET {changed} WHERE {guard}")
        self.replace = self._render("""
            UPDATE {sessions}
            SET length = %(length)s::bigint, last_seq = %(last_seq)s::bigint,
                covered = CASE WHEN covered <= %(keep)s::bigint THEN covered END,
                checkpoint = CASE WHEN covered <= %(keep)s::bigint THEN checkpoint END,
                indexed = least(indexed, %(keep)s::bigint), edits = edits + 1,
                {changed}
            WHERE {guard}
        """)
        self.archive = self._render("""
            INSERT INTO {archive} (session, {row})
            SELECT session, {row} FROM {entries} WHERE {tail} AND NOT seq = ANY (%(staying)s::bigint[]) ORDER BY place
        """)
        self.tail_size = self._render("SELECT coalesce(sum(octet_length(message)), 0) FROM {entries} WHERE {tail}")
        self.delete_tail = self._render("""
            WITH unindexed AS (
                DELETE FROM {search} WHERE {tail}
            ), without AS (
                DELETE FROM {vectors} v USING (SELECT seq FROM {entries} WHERE {tail}) AS gone
                WHERE v.session = %(key)s::bigint AND v.seq = gone.seq
            )
            DELETE FROM {entries} WHERE {tail}
        """)
        self.add_size = self._render("UPDATE {sessions} SET size = size + %(size)s::bigint WHERE key = %(key)s::bigint")
        self.save_checkpoint = self._render("""
            UPDATE {sessions} SET covered = %(covered)s::bigint, checkpoint = %(data)b, {changed} WHERE {guard}
        """)
        self.fork = self._render("""
            WITH p AS (
                SELECT * FROM {sessions} WHERE id = %(parent)s AND updated IS NOT NULL AND length >= %(count)s::bigint
            ), s AS (
                UPDATE {sessions} AS c
                SET length = %(count)s::bigint, last_seq = p.last_seq,
                    size = (
                        SELECT coalesce(sum(octet_length(e.message)), 0) FROM {entries} e
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
                INSERT INTO {entries} ({columns})
                SELECT s.key, e.seq, e.turn, e.tokens, e.place, e.message, coalesce(e.origin, %(parent)s), e.extra
                FROM s, {entries} e
                WHERE e.session = (SELECT key FROM p) AND e.place < %(count)s::bigint
            )
            SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM s)
        """)
        self.delete = self._render("""
            WITH s AS (
                DELETE FROM {sessions} WHERE key = %(key)s::bigint AND fence = %(fence)s::uuid RETURNING key
            ), e AS (
                DELETE FROM {entries} WHERE session = (SELECT key FROM s)
            ), a AS (
                DELETE FROM {archive} WHERE session = (SELECT key FROM s)
            ), d AS (
                DELETE FROM {damaged} WHERE session = (SELECT key FROM s)
            ), i AS (
                DELETE FROM {search} WHERE session = (SELECT key FROM s)
            ), v AS (
                DELETE FROM {vectors} WHERE session = (SELECT key FROM s)
            )
            SELECT key FROM s
        """)

    def _add_rewrites(self) -> None:
        self.differing = self._render("""
            SELECT count(*) FILTER (WHERE e.message <> r.message),
                coalesce(sum(octet_length(r.message) - octet_length(e.message)), 0)
            FROM {entries} e, {rows} AS r (seq, turn, tokens, message, origin, extra)
            WHERE e.session = %(key)s::bigint AND e.seq = r.seq
        """)
        self.differing_archived = self._render("""
            SELECT count(*) FILTER (WHERE e.message <> r.message), 0
            FROM {archive} e, {rows} AS r (seq, turn, tokens, message, origin, extra)
            WHERE e.session = %(key)s::bigint AND e.seq = r.seq
        """)
        self.unknown = self._render("""
            SELECT count(*) FROM {rows} AS r (seq, turn, tokens, message, origin, extra)
            WHERE NOT EXISTS (SELECT 1 FROM {entries} WHERE session = %(key)s::bigint AND seq = r.seq)
                AND NOT EXISTS (SELECT 1 FROM {archive} WHERE session = %(key)s::bigint AND seq = r.seq)
        """)
        self.discard_quarantine = self._render("DELETE FROM {damaged} WHERE session = %(key)s::bigint")
        self.rewrite_entries = self._render("""
            WITH without AS (
                DELETE FROM {vectors} v
                USING {entries} e, {rows} AS r (seq, turn, tokens, message, origin, extra)
                WHERE e.session = %(key)s::bigint AND e.seq = r.seq AND e.message <> r.message
                    AND v.session = %(key)s::bigint AND v.seq = r.seq
            )
            UPDATE {entries} AS e
            SET turn = r.turn, tokens = r.tokens, message = r.message,
                origin = nullif(r.origin, ''), extra = nullif(r.extra, '')
            FROM {rows} AS r (seq, turn, tokens, message, origin, extra)
            WHERE e.session = %(key)s::bigint AND e.seq = r.seq
        """)
        self.rewrite_archive = self._render("""
            UPDATE {archive} AS e
            SET turn = r.turn, tokens = r.tokens, message = r.message,
                origin = nullif(r.origin, ''), extra = nullif(r.extra, '')
            FROM {rows} AS r (seq, turn, tokens, message, origin, extra)
            WHERE e.session = %(key)s::bigint AND e.seq = r.seq
        """)
        self.discard_derived = self._render("""
            WITH gone AS (DELETE FROM {damaged} WHERE session = %(key)s::bigint),
                unindexed AS (DELETE FROM {search} WHERE session = %(key)s::bigint)
            UPDATE {sessions} SET covered = NULL, checkpoint = NULL, indexed = 0, edits = edits + 1
            WHERE key = %(key)s::bigint
        """)
        self.partitions = self._render("""
            SELECT DISTINCT c.relname
            FROM {entries} e JOIN pg_class c ON c.oid = e.tableoid
            WHERE e.session = %(key)s::bigint
        """)

    def _add_reads(self) -> None:
        self.extent = self._render("SELECT length, last_seq FROM {sessions} WHERE id = %(id)s AND updated IS NOT NULL")
        self.read_from = self._render("""
            SELECT {row} FROM {entries}
            WHERE session = {session_key} AND place >= CASE WHEN %(start)s::bigint < 0
                THEN greatest({session_length} + %(start)s::bigint, 0) ELSE %(start)s::bigint END
            ORDER BY place
        """)
        self.read = self._render("""
            SELECT {row} FROM {entries}
            WHERE session = {session_key}
                AND place >= CASE WHEN %(start)s::bigint < 0
                    THEN greatest({session_length} + %(start)s::bigint, 0) ELSE %(start)s::bigint END
                AND place < CASE WHEN %(stop)s::bigint < 0
                    THEN greatest({session_length} + %(stop)s::bigint, 0) ELSE %(stop)s::bigint END
            ORDER BY place
        """)
        self.find = self._render("""
            SELECT {row} FROM {entries} WHERE session = {session_key} AND seq = ANY (%(seqs)s::bigint[]) ORDER BY place
        """)
        self.archived = self._render("SELECT {row} FROM {archive} WHERE session = {session_key} ORDER BY number")
        self.load_checkpoint = self._render("SELECT checkpoint FROM {sessions} WHERE id = %(id)s AND covered <= length")
        self.sessions = self._render("""
            SELECT id, length, updated, size, CASE WHEN expires > clock_timestamp() THEN holder END
            FROM {sessions} WHERE updated IS NOT NULL
            ORDER BY updated DESC, key DESC
        """)

    def _add_checks(self) -> None:
        self.counts = self._render("""
            SELECT s.length, s.last_seq, s.covered, count(e.place), coalesce(min(e.place), 0),
                coalesce(max(e.place), -1), coalesce(max(e.seq), 0)
            FROM {sessions} s LEFT JOIN {entries} e ON e.session = s.key
            WHERE s.id = %(id)s GROUP BY s.key
        """)
        self.quarantine = self._render("""
            WITH gone AS (
                DELETE FROM {entries} WHERE session = %(key)s::bigint AND seq = ANY (%(seqs)s::bigint[])
                RETURNING session, seq, message, extra
            )
            INSERT INTO {damaged} (session, seq, message, extra) SELECT * FROM gone
        """)
        # In two steps, by way of negative indices: one step would move rows to indices that are still taken.
        self.renumber = self._render("""
            UPDATE {entries} e SET place = -1 - n.new
            FROM (
                SELECT place, row_number() OVER (ORDER BY place) - 1 AS new
                FROM {entries} WHERE session = %(key)s::bigint
            ) n
            WHERE e.session = %(key)s::bigint AND e.place = n.place
        """)
        self.renumber_back = self._render("UPDATE {entries} SET place = -1 - place WHERE session = %(key)s::bigint")
        self.recount = self._render("""
            WITH unindexed AS (
                DELETE FROM {search} WHERE session = %(key)s::bigint
            ), without AS (
                DELETE FROM {vectors} v WHERE session = %(key)s::bigint
                    AND NOT EXISTS (SELECT FROM {entries} e WHERE e.session = v.session AND e.seq = v.seq)
            )
            UPDATE {sessions}
            SET length = (SELECT count(*) FROM {entries} WHERE session = %(key)s::bigint),
                covered = NULL, checkpoint = NULL, indexed = 0, edits = edits + 1
            WHERE key = %(key)s::bigint
        """)

    def _add_search(self, schema: str) -> None:
        table, index, stems = (
            sql.Literal(sql.Identifier(schema, name).as_string()) for name in ("search", "search_words", "stems")
        )
        self._names |= {"search_name": table, "index_name": index, "stems": sql.SQL("{}::regconfig").format(stems)}
        self.index_state = self._render("""
            SELECT key, length, indexed,
                (SELECT coalesce(max(part) + 1, 0) FROM {search} WHERE session = key AND place = indexed), edits,
                indexed > 0 AND NOT EXISTS (SELECT FROM {search} WHERE session = key),
                current_setting('transaction_read_only') = 'off' AND has_table_privilege({search_name}, 'INSERT')
            FROM {sessions} WHERE id = %(id)s AND updated IS NOT NULL
        """)
        self.unindexed = self._render("""
            SELECT place, message
            FROM (
                SELECT place, message, sum(octet_length(message)) OVER (ORDER BY place) - octet_length(message)
                        AS before
                FROM {entries}
                WHERE session = %(key)s::bigint AND place >= %(start)s::bigint AND place < %(stop)s::bigint
            ) AS found
            WHERE before < %(bytes)s::bigint
            ORDER BY place
        """)
        # Adds nothing if another process has added these messages, or the history was edited since they were read; of
        # the pieces of one message, none twice.
        self.index = self._render("""
            WITH s AS (
                UPDATE {sessions} SET indexed = %(stop)s::bigint
                WHERE key = %(key)s::bigint AND indexed = %(start)s::bigint AND edits = %(edits)s::bigint
                RETURNING key
            )
            INSERT INTO {search} (session, place, part, words)
            SELECT s.key, r.place, r.part, to_tsvector({stems}, r.text)
            FROM s, unnest(%(places)s::bigint[], %(parts)s::bigint[], %(texts)b::text[]) AS r (place, part, text)
            ON CONFLICT DO NOTHING
        """)
        # Only the owner of the index may merge its pending list.
        self.merge_index = self._render("""
            SELECT gin_clean_pending_list(oid) FROM pg_class
            WHERE oid = {index_name}::regclass AND pg_has_role(relowner, 'USAGE')
        """)
        self.forget_index = self._render("""
            WITH gone AS (DELETE FROM {search} WHERE session = %(key)s::bigint)
            UPDATE {sessions} SET indexed = 0, edits = edits + 1 WHERE key = %(key)s::bigint
        """)
        self._names["asked"] = sql.SQL("""WITH asked AS MATERIALIZED (
                SELECT to_tsquery({stems}, text) AS query, most, number
                FROM unnest(%(queries)b::text[], %(limits)s::bigint[]) WITH ORDINALITY AS r (text, most, number)
            )""").format(**self._names)
        self.matching = self._render("""
            {asked} SELECT ARRAY(SELECT place FROM {search} WHERE words @@ query LIMIT most) FROM asked ORDER BY number
        """)
        self.newest_matching = self._render("""
            {asked} SELECT ARRAY(SELECT place FROM {search} WHERE words @@ query ORDER BY place DESC LIMIT most)
            FROM asked ORDER BY number
        """)
        self.messages_at = self._render("""
            SELECT place, seq, message, extra FROM {entries}
            WHERE session = %(key)s::bigint AND place = ANY (%(places)s::bigint[]) ORDER BY place
        """)

    def _add_vectors(self) -> None:
        self.vectors = self._render("""
            SELECT seq, digest, vector FROM {vectors} WHERE session = {session_key} AND model = %(model)s
        """)
        self.embedded_messages = self._render("""
            SELECT s.key, s.edits, e.seq, e.message
            FROM {sessions} s JOIN {entries} e ON e.session = s.key
            WHERE s.id = %(id)s AND e.seq = ANY (%(seqs)s::bigint[])
        """)
        self.drop_other_vectors = self._render("""
            DELETE FROM {vectors} WHERE session = %(key)s::bigint
            AND (SELECT model FROM {vectors} WHERE session = %(key)s::bigint LIMIT 1) <> %(model)s
        """)
        # Keeps nothing if the history was edited since its messages were compared with the vectors.
        self.save_vectors = self._render("""
            WITH s AS (
                SELECT key FROM {sessions}
                WHERE key = %(key)s::bigint AND edits = %(edits)s::bigint FOR NO KEY UPDATE
            )
            INSERT INTO {vectors} AS v (session, seq, model, digest, vector)
            SELECT s.key, r.seq, %(model)s, r.digest, r.vector
            FROM s, unnest(%(seqs)s::bigint[], %(digests)s::bytea[], %(vectors)s::bytea[]) AS r (seq, digest, vector)
            ON CONFLICT (session, seq)
            DO UPDATE SET model = excluded.model, digest = excluded.digest, vector = excluded.vector
        """)


def array(values: Sequence[object]) -> str:
    """Return numbers or ids as the text of a PostgreSQL array."""
    return "{" + ",".join(map(str, values)) + "}"
