"""Holders of snapshots on a PostgreSQL server: they keep every dead row that is newer."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from sql.doctor.base import Scope
from sql.doctor.finding import Finding, Severity, lasting, unchecked
from sql.postgresql.settings import RELOAD

STANDBY_TRANSACTIONS = 100_000
"""The least lag of a standby that is told: the age of its snapshot is known over there only."""
SHOWN = 5
"""Sessions of one kind that are told one by one."""


def old_snapshot(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Transactions that stay open.

    Until they end, no vacuum removes rows that have ended since they began.
    """
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
            "SELECT pid, usename, application_name, state, age(backend_xmin) AS behind, "
            "wait_event_type = 'Lock' AS waits, extract(epoch FROM clock_timestamp() - "
            "xact_start)::float AS seconds FROM pg_stat_activity WHERE datname = "
            "current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
            "AND extract(epoch FROM clock_timestamp() - xact_start) > :seconds ORDER BY "
            "xact_start LIMIT :shown"
        ),
        {"seconds": scope.transaction_seconds, "shown": SHOWN},
    )
    for row in rows:
        behind = f", {row.behind:,} transactions behind" if row.behind is not None else ""
        yield Finding(
            "old-snapshot",
            Severity.SLOW,
            f"pid {row.pid}",
            f"{row.application_name or 'a program without a name'} ({row.usename}) has had a "
            f"transaction open for {lasting(row.seconds)} "
            f"({'waits for a lock' if row.waits else row.state}{behind}): dead rows newer than it "
            "stay, and the entries that it has posted or locked wait for it.",
            f"End it in that program, or: SELECT pg_terminate_backend({row.pid})",
        )


def prepared_transaction(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Two-phase transactions that nobody has ended: they outlive their session, and the server."""
    rows = connection.execute(
        text(
            "SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float AS seconds "
            "FROM pg_prepared_xacts WHERE database = current_database() AND extract(epoch FROM "
            "clock_timestamp() - prepared) > :seconds ORDER BY prepared LIMIT :shown"
        ),
        {"seconds": scope.transaction_seconds, "shown": SHOWN},
    )
    for row in rows:
        yield Finding(
            "prepared-transaction",
            Severity.SLOW,
            row.gid,
            f"{row.owner} prepared a transaction {lasting(row.seconds)} ago, and nobody has ended "
            "it: it holds its locks and its snapshot, and its posts wait.",
            f"COMMIT PREPARED '{row.gid}', or: ROLLBACK PREPARED '{row.gid}'",
        )


def slot(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Replication slots that nobody reads."""
    del scope
    rows = connection.execute(
        text(
            "SELECT slot_name, age(coalesce(xmin, catalog_xmin)) AS behind, "
            "pg_size_pretty(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN "
            "pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)) AS kept FROM "
            "pg_replication_slots WHERE NOT active AND NOT temporary AND restart_lsn IS NOT NULL "
            "ORDER BY slot_name"
        )
    )
    for row in rows:
        behind = (
            f", and a snapshot that is {row.behind:,} transactions old"
            if row.behind is not None
            else ""
        )
        yield Finding(
            "slot",
            Severity.SLOW,
            row.slot_name,
            f"nobody reads the replication slot {row.slot_name}; it keeps {row.kept} of "
            f"WAL{behind}. The disk fills.",
            f"Start its reader, or: SELECT pg_drop_replication_slot('{row.slot_name}')",
        )


def standby(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Snapshots that queries on standbys hold here, by `hot_standby_feedback`.

    They do so through a slot, or without one.
    """
    del scope
    rows = connection.execute(
        text(
            "SELECT name, behind FROM (SELECT coalesce(nullif(application_name, ''), "
            "client_addr::text) AS name, age(backend_xmin) AS behind FROM pg_stat_replication "
            "UNION ALL SELECT slot_name, age(xmin) FROM pg_replication_slots WHERE active) AS "
            "readers WHERE behind > :transactions ORDER BY behind DESC, name"
        ),
        {"transactions": STANDBY_TRANSACTIONS},
    )
    for row in rows:
        yield Finding(
            "standby",
            Severity.SLOW,
            row.name,
            f"a query on the standby {row.name} holds a snapshot that is {row.behind:,} "
            "transactions old: dead rows newer than it stay here, too.",
            "End it over there (pg_stat_activity names its user and program), or on that standby: "
            f"ALTER SYSTEM SET hot_standby_feedback = off{RELOAD}",
        )
