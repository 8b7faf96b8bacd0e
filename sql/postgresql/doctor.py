"""What a PostgreSQL server is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, text
from sqlalchemy.dialects import postgresql

from sql.doctor.base import ConnectionLimit, Doctor, Fault, Keys, Scope, Step
from sql.doctor.finding import Finding, Severity, lasting, unchecked
from sql.doctor.settings import Rule, broken
from sql.tables import STORAGE, entry_tables

DEAD_ROWS = 10_000
STALE_SECONDS = 600.0
"""Dead rows are normal between two vacuums; so many that no vacuum has looked at for so long are not."""
ANALYSE_ROWS = 10_000
STANDBY_TRANSACTIONS = 100_000
"""How far behind a standby's snapshot is told: its age in seconds is known over there only."""
SHOWN = 5
"""Sessions of one kind that are told one by one."""

_RELOAD = "; SELECT pg_reload_conf()"
_RULES = (
    Rule(
        "fsync",
        lambda value: value == "off",
        Severity.DANGER,
        "a crash of the machine may corrupt the whole cluster",
        f"ALTER SYSTEM SET fsync = on{_RELOAD}",
    ),
    Rule(
        "full_page_writes",
        lambda value: value == "off",
        Severity.DANGER,
        "a crash of the machine may leave half-written pages, which nobody can repair",
        f"ALTER SYSTEM SET full_page_writes = on{_RELOAD}",
    ),
    Rule(
        "synchronous_commit",
        lambda value: value == "off",
        Severity.DANGER,
        "what was posted or finished just before a crash of the server is lost, although COMMIT returned",
        f"ALTER SYSTEM SET synchronous_commit = on{_RELOAD} -- or where it was set: ALTER DATABASE or ALTER ROLE … RESET "
        "synchronous_commit",
    ),
    Rule(
        "transaction_read_only",
        lambda value: value == "on",
        Severity.DANGER,
        "nothing can be posted or claimed; the server is a standby, or its default was changed",
        "Give the URL of the primary, or: ALTER DATABASE … RESET default_transaction_read_only",
    ),
    Rule(
        "autovacuum",
        lambda value: value == "off",
        Severity.SLOW,
        "rows of ended entries are never removed, and claims read them all",
        f"ALTER SYSTEM SET autovacuum = on{_RELOAD}",
    ),
    Rule(
        "track_counts",
        lambda value: value == "off",
        Severity.SLOW,
        "autovacuum doesn't see that a table needs it",
        f"ALTER SYSTEM SET track_counts = on{_RELOAD}",
    ),
)


_KEYS = """
SELECT c.relname AS name, n.relname AS index_name, i.indisprimary,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k(number, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY k.place) AS columns
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class n ON n.oid = i.indexrelid
 WHERE c.oid IN (SELECT oid FROM ours)
"""
_LIMITS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS server,
       (SELECT sum(numbackends)::int FROM pg_stat_database) AS server_used,
       d.datconnlimit AS database,
       (SELECT numbackends FROM pg_stat_database s WHERE s.datid = d.oid) AS database_used,
       CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END AS role,
       (SELECT count(*)::int FROM pg_stat_activity a WHERE a.usesysid = r.oid) AS role_used
  FROM pg_database d, pg_roles r
 WHERE d.datname = current_database() AND r.rolname = current_user
"""


def settings(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Settings as they hold in a session of ours."""
    del scope
    names = [rule.setting for rule in _RULES]
    rows = connection.execute(
        text("SELECT name, current_setting(name) AS value FROM pg_settings WHERE name IN :names").bindparams(
            bindparam("names", names, expanding=True)
        )
    )
    yield from broken("settings", _RULES, {row.name: row.value for row in rows})


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
        "SELECT i.indexrelid::regclass::text AS index_name, c.relname AS name FROM pg_index i JOIN pg_class c "
        "ON c.oid = i.indrelid WHERE NOT i.indisvalid AND c.oid IN (SELECT oid FROM ours)"
    )
    for row in connection.execute(statement, {"tables": scope.names}):
        yield Finding(
            "invalid-index",
            Severity.SLOW,
            row.name,
            f"the index {row.index_name} is invalid: its build failed, so that no statement uses it.",
            f"REINDEX INDEX CONCURRENTLY {row.index_name}",
        )


def autovacuum(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Tables that autovacuum passes over, or looks at as rarely as at an archive."""
    wanted = _storage_settings(scope)
    for row in _tables(connection, scope):
        options = row.reloptions or []
        if any(option in {"autovacuum_enabled=false", "autovacuum_enabled=off"} for option in options):
            yield Finding(
                "autovacuum",
                Severity.SLOW,
                row.name,
                f"autovacuum is off for {row.name}: rows of ended entries are never removed.",
                f"ALTER TABLE {row.name} RESET (autovacuum_enabled)",
            )
        elif row.name in wanted and not any(option.startswith("autovacuum_vacuum_") for option in options):
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
        "SELECT relname AS name, n_dead_tup, n_live_tup, last_analyze IS NULL AND last_autoanalyze IS NULL AS unknown, "
        "extract(epoch FROM clock_timestamp() - greatest(last_vacuum, last_autovacuum))::float AS since "
        "FROM pg_stat_user_tables WHERE relid IN (SELECT oid FROM ours) ORDER BY relname"
    )
    for row in connection.execute(statement, {"tables": scope.names}):
        if row.n_dead_tup >= DEAD_ROWS and (row.since is None or row.since >= STALE_SECONDS):
            ago = "never" if row.since is None else f"{lasting(row.since)} ago"
            yield Finding(
                "dead-rows",
                Severity.SLOW,
                row.name,
                f"{row.name} has {row.n_dead_tup:,} dead rows; it was vacuumed {ago}. Claims walk over them.",
                f"VACUUM (ANALYZE) {row.name}",
            )
        if row.n_live_tup >= ANALYSE_ROWS and row.unknown:
            yield Finding(
                "never-analysed",
                Severity.SLOW,
                row.name,
                f"{row.name} has some {row.n_live_tup:,} rows and was never analysed: plans rest on guesses.",
                f"ANALYZE {row.name}",
            )


def old_snapshot(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Transactions that stay open: until they end, no vacuum removes what has ended since they began."""
    role, allowed = connection.execute(
        text("SELECT current_user, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")
    ).one()
    if not allowed:
        yield unchecked(
            "old-snapshot",
            role,
            f"sessions of other users are hidden from {role}",
            f"GRANT pg_read_all_stats TO {role}",
        )
    rows = connection.execute(
        text(
            "SELECT pid, usename, application_name, state, age(backend_xmin) AS behind, wait_event_type = 'Lock' AS waits, "
            "extract(epoch FROM clock_timestamp() - xact_start)::float AS seconds FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
            "AND extract(epoch FROM clock_timestamp() - xact_start) > :seconds ORDER BY xact_start LIMIT :shown"
        ),
        {"seconds": scope.transaction_seconds, "shown": SHOWN},
    )
    for row in rows:
        behind = f", {row.behind:,} transactions behind" if row.behind is not None else ""
        yield Finding(
            "old-snapshot",
            Severity.SLOW,
            f"pid {row.pid}",
            f"{row.application_name or 'a program without a name'} ({row.usename}) has had a transaction open for "
            f"{lasting(row.seconds)} ({'waits for a lock' if row.waits else row.state}{behind}): dead rows newer than it "
            "stay, and what it has posted or locked waits for it.",
            f"End it in that program, or: SELECT pg_terminate_backend({row.pid})",
        )


def prepared_transaction(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Two-phase transactions that nobody has ended: they outlive their session, and the server."""
    rows = connection.execute(
        text(
            "SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float AS seconds FROM pg_prepared_xacts "
            "WHERE database = current_database() AND extract(epoch FROM clock_timestamp() - prepared) > :seconds "
            "ORDER BY prepared LIMIT :shown"
        ),
        {"seconds": scope.transaction_seconds, "shown": SHOWN},
    )
    for row in rows:
        yield Finding(
            "prepared-transaction",
            Severity.SLOW,
            row.gid,
            f"{row.owner} prepared a transaction {lasting(row.seconds)} ago that nobody has ended: it holds its locks and "
            "its snapshot, and what it posted waits.",
            f"COMMIT PREPARED '{row.gid}', or: ROLLBACK PREPARED '{row.gid}'",
        )


def slot(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Replication slots that nobody reads."""
    del scope
    rows = connection.execute(
        text(
            "SELECT slot_name, age(coalesce(xmin, catalog_xmin)) AS behind, pg_size_pretty(pg_wal_lsn_diff(CASE WHEN "
            "pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)) AS kept "
            "FROM pg_replication_slots WHERE NOT active AND NOT temporary AND restart_lsn IS NOT NULL ORDER BY slot_name"
        )
    )
    for row in rows:
        behind = f", and a snapshot that is {row.behind:,} transactions old" if row.behind is not None else ""
        yield Finding(
            "slot",
            Severity.SLOW,
            row.slot_name,
            f"nobody reads the replication slot {row.slot_name}; it keeps {row.kept} of WAL{behind}. The disk fills.",
            f"Start its reader, or: SELECT pg_drop_replication_slot('{row.slot_name}')",
        )


def standby(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Snapshots that queries on standbys hold here, by `hot_standby_feedback`: through a slot, or without one."""
    del scope
    rows = connection.execute(
        text(
            "SELECT name, behind FROM (SELECT coalesce(nullif(application_name, ''), client_addr::text) AS name, "
            "age(backend_xmin) AS behind FROM pg_stat_replication UNION ALL SELECT slot_name, age(xmin) "
            "FROM pg_replication_slots WHERE active) AS readers WHERE behind > :transactions ORDER BY behind DESC, name"
        ),
        {"transactions": STANDBY_TRANSACTIONS},
    )
    for row in rows:
        yield Finding(
            "standby",
            Severity.SLOW,
            row.name,
            f"a query on the standby {row.name} holds a snapshot that is {row.behind:,} transactions old: dead rows newer "
            "than it stay here, too.",
            "End it over there (pg_stat_activity tells who runs it), or on that standby: "
            f"ALTER SYSTEM SET hot_standby_feedback = off{_RELOAD}",
        )


def _of_tables(statement: str) -> Any:
    """A statement on `ours`: the tables of `:tables` that an unqualified name reaches."""
    ours = (
        "WITH ours AS (SELECT oid FROM pg_class WHERE relkind IN ('r', 'p') AND relname IN :tables "
        "AND pg_table_is_visible(oid)) "
    )
    return text(ours + statement).bindparams(bindparam("tables", expanding=True))


def _tables(connection: Connection, scope: Scope) -> list[Row[Any]]:
    statement = _of_tables(
        "SELECT relname AS name, reloptions, relpersistence AS persistence FROM pg_class "
        "WHERE oid IN (SELECT oid FROM ours) ORDER BY relname"
    )
    return list(connection.execute(statement, {"tables": scope.names}))


_quoted = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


def _storage_settings(scope: Scope) -> dict[str, str]:
    """The statement that gives a table its settings, by its name."""
    pairs = map(entry_tables, scope.tables)
    return {
        table.name: f"ALTER TABLE {_quoted(table.name)} SET ({table.info[STORAGE]})"
        for pair in pairs
        for table in (pair.main, pair.history)
    }


class PostgreSQLDoctor(Doctor):
    """PostgreSQL; see the module."""

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
        # Our sessions avoid scans by their costs; questions to the catalogues can't, and would be compiled for that.
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
            elif scanned and "Scan" in kind and not _seeks(node, table):
                yield Fault(Step.WALK, f"{kind} {node.get('Index Name')}")

    def connection_limits(self, connection: Connection) -> list[ConnectionLimit]:
        """See `Doctor`."""
        row = connection.execute(text(_LIMITS)).one()
        limits = [
            ConnectionLimit("the server", row.server, row.server_used, "Raise max_connections"),
            ConnectionLimit(
                "the database", row.database, row.database_used, "ALTER DATABASE … CONNECTION LIMIT …"
            ),
            ConnectionLimit("the role", row.role, row.role_used, "ALTER ROLE … CONNECTION LIMIT …"),
        ]
        return [limit for limit in limits if limit.most >= 0]


def _seeks(scan: Mapping[str, Any], table: str) -> bool:
    """Whether a scan knows where in its index to begin: a condition on a later column alone is tried on every entry."""
    condition = scan.get("Index Cond")
    first = "lane" if scan.get("Index Name") == f"{table}_claim" else ""
    return condition is not None and first in condition
