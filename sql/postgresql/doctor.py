"""The questions to a PostgreSQL server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, TextClause, bindparam, text
from sqlalchemy.dialects import postgresql

from sql.doctor.base import ConnectionLimit, Doctor, Fault, Keys, Scope, Step
from sql.doctor.finding import Finding, Severity, lasting
from sql.families import metadata_for
from sql.postgresql.settings import settings
from sql.postgresql.snapshots import old_snapshot, prepared_transaction, slot, standby
from sql.tables import STORAGE

DEAD_ROWS = 10_000
STALE_SECONDS = 600.0
"""The time since the last vacuum from which `DEAD_ROWS` is a fault.

Dead rows are normal between two vacuums.
"""
ANALYSE_ROWS = 10_000
"""Rows from which a table needs statistics."""
_KEYS = """
SELECT c.relname AS name, n.relname AS index_name, i.indisprimary,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k(number, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
               ORDER BY k.place) AS columns
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class n ON n.oid = i.indexrelid
 WHERE c.oid IN (SELECT oid FROM ours)
"""
_LIMITS = """
SELECT current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int AS server,
       (SELECT sum(numbackends)::int FROM pg_stat_database) AS server_used,
       d.datconnlimit AS database,
       (SELECT numbackends FROM pg_stat_database s WHERE s.datid = d.oid) AS database_used,
       CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END AS role,
       (SELECT count(*)::int FROM pg_stat_activity a WHERE a.usesysid = r.oid) AS role_used
  FROM pg_database d, pg_roles r
 WHERE d.datname = current_database() AND r.rolname = current_user
"""


def storage(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Tables that are emptied by a crash."""
    for row in _tables(connection, scope):
        if row.persistence != "p":
            yield Finding(
                "storage",
                Severity.DANGER,
                row.name,
                f"{row.name} is UNLOGGED: a crash of the server empties it.",
                f"ALTER TABLE {row.name} SET LOGGED",
            )


def invalid_index(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Indices that a build left behind unfinished: each write keeps them up, no read uses them."""
    statement = _of_tables(
        "SELECT i.indexrelid::regclass::text AS index_name, c.relname AS name FROM pg_index i JOIN "
        "pg_class c ON c.oid = i.indrelid WHERE NOT i.indisvalid AND c.oid IN (SELECT oid FROM "
        "ours)"
    )
    for row in connection.execute(statement, {"tables": scope.names}):
        yield Finding(
            "invalid-index",
            Severity.SLOW,
            row.name,
            f"the index {row.index_name} is invalid: its build failed, so that no statement "
            "uses it.",
            f"REINDEX INDEX CONCURRENTLY {row.index_name}",
        )


def autovacuum(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Tables that autovacuum passes over, or looks at as rarely as at an archive."""
    wanted = _storage_settings(scope)
    for row in _tables(connection, scope):
        options = row.reloptions or []
        if row.partitioned:  # its partitions have the settings
            continue
        if any(
            option in {"autovacuum_enabled=false", "autovacuum_enabled=off"} for option in options
        ):
            yield Finding(
                "autovacuum",
                Severity.SLOW,
                row.name,
                f"autovacuum is off for {row.name}: rows of ended entries are never removed.",
                f"ALTER TABLE {row.name} RESET (autovacuum_enabled)",
            )
        elif row.name in wanted and not any(
            option.startswith("autovacuum_vacuum_") for option in options
        ):
            yield Finding(
                "autovacuum",
                Severity.SLOW,
                row.name,
                f"{row.name} lacks the settings that make autovacuum keep up with a queue.",
                wanted[row.name],
            )


def dead_rows(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Rows that no vacuum has removed for long, and tables that were never analysed."""
    statement = _of_tables(
        "SELECT relname AS name, n_dead_tup, n_live_tup, last_analyze IS NULL AND last_autoanalyze "
        "IS NULL AS unknown, extract(epoch FROM clock_timestamp() - greatest(last_vacuum, "
        "last_autovacuum))::float AS since FROM pg_stat_user_tables WHERE relid IN (SELECT oid "
        "FROM ours) ORDER BY relname"
    )
    for row in connection.execute(statement, {"tables": scope.names}):
        if row.n_dead_tup >= DEAD_ROWS and (row.since is None or row.since >= STALE_SECONDS):
            ago = "never" if row.since is None else f"{lasting(row.since)} ago"
            yield Finding(
                "dead-rows",
                Severity.SLOW,
                row.name,
                f"{row.name} has {row.n_dead_tup:,} dead rows; it was vacuumed {ago}. Reads of "
                "due entries walk over them.",
                f"VACUUM (ANALYZE) {row.name}",
            )
        if row.n_live_tup >= ANALYSE_ROWS and row.unknown:
            yield Finding(
                "never-analysed",
                Severity.SLOW,
                row.name,
                f"{row.name} has some {row.n_live_tup:,} rows and was never analysed: plans rest "
                "on guesses.",
                f"ANALYZE {row.name}",
            )


def _of_tables(statement: str) -> TextClause:
    """A statement on `ours`: the tables of `:tables` that an unqualified name reaches."""
    ours = (
        "WITH ours AS (SELECT oid FROM pg_class WHERE relkind IN ('r', 'p') AND relname IN :tables "
        "AND pg_table_is_visible(oid)) "
    )
    return text(ours + statement).bindparams(bindparam("tables", expanding=True))


def _tables(connection: Connection, scope: Scope) -> list[Row[Any]]:
    statement = _of_tables(
        "SELECT relname AS name, reloptions, relpersistence AS persistence, relkind = 'p' AS "
        "partitioned FROM pg_class WHERE oid IN (SELECT oid FROM ours) ORDER BY relname"
    )
    return list(connection.execute(statement, {"tables": scope.names}))


_quoted = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]  # not typed there


def _storage_settings(scope: Scope) -> dict[str, str]:
    """The statement that gives a table its settings, by its name."""
    return {
        table.name: f"ALTER TABLE {_quoted(table.name)} SET ({table.info[STORAGE]})"
        for table in metadata_for(*scope.tables).tables.values()
        if STORAGE in table.info
    }


class PostgreSQLDoctor(Doctor):
    """Asks PostgreSQL."""

    explain = "EXPLAIN (FORMAT JSON) "

    checks = (
        settings,
        storage,
        invalid_index,
        autovacuum,
        dead_rows,
        old_snapshot,
        prepared_transaction,
        slot,
        standby,
    )

    def settle(self, connection: Connection) -> None:
        """See `Doctor`."""
        # Our sessions avoid scans by their costs; questions to the catalogues can't, and would be
        # compiled for that.
        connection.execute(text("SELECT set_config('jit', 'off', false)"))

    def keys(self, connection: Connection, tables: Sequence[str]) -> dict[str, Keys]:
        """See `Doctor`."""
        found = {table: Keys() for table in tables}
        for row in connection.execute(_of_tables(_KEYS), {"tables": list(tables)}):
            if row.indisprimary:
                found[row.name].primary = row.columns
            else:
                found[row.name].indices[row.index_name] = row.columns
        return found

    def faults(self, plan: Sequence[Mapping[str, Any]], table: str) -> Iterator[Fault]:
        """See `Doctor`."""
        [document] = plan[0].values()
        tree = json.loads(document) if isinstance(document, str) else document
        nodes = [tree[0]["Plan"]]
        while nodes:
            node = nodes.pop()
            nodes += node.get("Plans", [])
            kind, scanned = str(node["Node Type"]), node.get("Relation Name") == table
            if "Sort" in kind:
                yield Fault(Step.SORT, kind)
            elif scanned and kind in {"Seq Scan", "Bitmap Heap Scan"}:
                yield Fault(Step.SCAN, kind)
            elif scanned and "Scan" in kind and kind != "Tid Scan" and not _seeks(node, table):
                yield Fault(Step.WALK, f"{kind} {node.get('Index Name')}")

    def connection_limits(self, connection: Connection) -> list[ConnectionLimit]:
        """See `Doctor`."""
        row = connection.execute(text(_LIMITS)).one()
        limits = [
            ConnectionLimit("the server", row.server, row.server_used, "Raise max_connections"),
            ConnectionLimit(
                "the database",
                row.database,
                row.database_used,
                "ALTER DATABASE … CONNECTION LIMIT …",
            ),
            ConnectionLimit("the role", row.role, row.role_used, "ALTER ROLE … CONNECTION LIMIT …"),
        ]
        return [limit for limit in limits if limit.most >= 0]


def _seeks(scan: Mapping[str, Any], table: str) -> bool:
    """Whether a scan knows where in its index to begin.

    A condition on a later column alone is tried on every entry.
    """
    condition = scan.get("Index Cond")
    first = "lane" if scan.get("Index Name") == f"{table}_claim" else ""
    return condition is not None and first in condition
