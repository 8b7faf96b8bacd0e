"""The questions to a MySQL or MariaDB server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, text

from sql.doctor.base import ConnectionLimit, Doctor, Fault, Keys, Scope, Step
from sql.doctor.finding import Finding, Severity, lasting
from sql.doctor.settings import Rule, broken
from sql.mysql.sessions import sessions_of

HISTORY_LIST = 100_000
"""Undo logs that wait for the purge. A busy server has some thousands."""
LONG_LOCK_WAIT_SECONDS = 300
"""A wait for a lock from which `innodb_lock_wait_timeout` holds calls up too long."""
SHOWN = 5
"""Sessions that are told one by one."""

_RULES = (
    Rule(
        "innodb_flush_log_at_trx_commit",
        lambda value: value not in {"1", "3"},
        Severity.DANGER,
        "a crash loses the posts and outcomes of the last second before it, although COMMIT "
        "returned",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's option file",
    ),
    Rule(
        "innodb_doublewrite",
        lambda value: value in {"OFF", "0"},
        Severity.DANGER,
        "a crash of the machine may leave half-written pages, which nobody can repair",
        "innodb_doublewrite = ON in the server's option file",
    ),
    Rule(
        "read_only",
        lambda value: value in {"ON", "1"},
        Severity.DANGER,
        "nothing can be posted or claimed by an ordinary user; the server is a replica, or was "
        "closed",
        "Give the URL of the primary, or: SET GLOBAL read_only = OFF",
    ),
    Rule(
        "transaction_isolation",
        lambda value: value == "SERIALIZABLE",
        Severity.SLOW,
        "in your own transactions each plain read locks its rows, and claims pass over them",
        "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED",
    ),
    Rule(
        "innodb_lock_wait_timeout",
        lambda value: int(value) > LONG_LOCK_WAIT_SECONDS,
        Severity.NOTE,
        "your own transactions wait this long for a lock before they learn that something is wrong",
        "SET GLOBAL innodb_lock_wait_timeout = 50",
    ),
)
_BINARY_LOG_RULES = (
    Rule(
        "binlog_format",
        lambda value: value == "STATEMENT",
        Severity.DANGER,
        "InnoDB refuses every write of a READ COMMITTED transaction, and Stickybus writes at "
        "no other level",
        "SET GLOBAL binlog_format = 'ROW' (or MIXED), and in the server's option file",
    ),
    Rule(
        "sync_binlog",
        lambda value: value != "1",
        Severity.DANGER,
        "after a crash of the machine transactions that the binary log lacks are rolled back, "
        "although COMMIT returned",
        "SET GLOBAL sync_binlog = 1, and in the server's option file",
    ),
)
_ALIASES = {"tx_isolation": "transaction_isolation"}


def settings(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Settings of the whole server."""
    del scope
    names = [rule.setting for rule in (*_RULES, *_BINARY_LOG_RULES)]
    values = _variables(connection, [*names, *_ALIASES, "log_bin"])
    values |= {name: values[alias] for alias, name in _ALIASES.items() if alias in values}
    yield from broken("settings", _RULES, values)
    if values["log_bin"] in {"ON", "1"}:
        yield from broken("settings", _BINARY_LOG_RULES, values)


def storage(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Tables of an engine without transactions."""
    statement = text(
        "SELECT table_name AS name, engine AS engine FROM information_schema.tables WHERE "
        "table_schema = database() AND table_name IN :names AND engine <> 'InnoDB' ORDER BY "
        "table_name"
    ).bindparams(bindparam("names", scope.names, expanding=True))
    for row in connection.execute(statement):
        yield Finding(
            "storage",
            Severity.DANGER,
            row.name,
            f"{row.name} is a table of {row.engine}: nothing of it can be rolled back, and a crash "
            "may leave it half-written.",
            f"ALTER TABLE {row.name} ENGINE = InnoDB",
        )


def invalid_index(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Indices that no statement uses, though they are kept up.

    MariaDB calls them IGNORED, MySQL INVISIBLE.
    """
    hidden = {
        (row["TABLE_NAME"], row["INDEX_NAME"]): (
            "NOT IGNORED" if row.get("IGNORED") == "YES" else "VISIBLE"
        )
        for row in _index_columns(connection, scope.names)
        if row.get("IGNORED") == "YES" or row.get("IS_VISIBLE") == "NO"
    }
    for (table, index), seen in hidden.items():
        yield Finding(
            "invalid-index",
            Severity.SLOW,
            table,
            f"the index {index} is hidden: no statement uses it.",
            f"ALTER TABLE {table} ALTER INDEX {index} {seen}",
        )


def history_list(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """The length of InnoDB's history list: rows of ended entries, over which looks still walk."""
    del scope
    length = connection.execute(
        text(
            "SELECT `count` FROM information_schema.innodb_metrics WHERE name = "
            "'trx_rseg_history_len'"
        )
    ).scalar_one()
    if length > HISTORY_LIST:
        yield Finding(
            "history-list",
            Severity.SLOW,
            "InnoDB",
            f"{length:,} changes wait for the purge: looks for due entries walk over rows that "
            "ended long ago.",
            "End long transactions; if there are none: SET GLOBAL innodb_purge_batch_size = 1000",
        )


def _index_columns(connection: Connection, tables: Sequence[str]) -> list[Mapping[str, Any]]:
    """A row for each column of each index, in order. MariaDB's and MySQL's rows differ."""
    statement = text(
        "SELECT * FROM information_schema.statistics WHERE table_schema = database() AND "
        "table_name IN :names ORDER BY table_name, index_name, seq_in_index"
    ).bindparams(bindparam("names", list(tables), expanding=True))
    return [dict(row) for row in connection.execute(statement).mappings()]


def _variables(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    statement = text("SHOW GLOBAL VARIABLES WHERE variable_name IN :names")
    rows = connection.execute(statement.bindparams(bindparam("names", list(names), expanding=True)))
    return {str(name): str(value) for name, value in rows}


class MySQLDoctor(Doctor):
    """Asks MySQL."""

    # MySQL 9 draws a tree if it isn't asked for a table.
    explain = "EXPLAIN FORMAT=TRADITIONAL "

    def __init__(self) -> None:
        self.checks = (settings, storage, invalid_index, self.long_transaction, history_list)

    def long_transaction(self, connection: Connection, scope: Scope) -> Iterator[Finding]:
        """Transactions that stay open, or wait for a lock.

        The purge waits for them, and so do all who need the rows that they have locked.
        """
        rows = connection.execute(
            text(
                # InnoDB tells these dates in the time zone of its machine, not of the session.
                "SELECT t.trx_mysql_thread_id AS id, t.trx_state AS state, "  # noqa: S608 -- a name of ours
                "t.trx_rows_locked AS locked, p.user AS user, "
                "p.host AS host, TIMESTAMPDIFF(MICROSECOND, t.trx_started, "
                "CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) "
                "/ 1000000 AS seconds FROM information_schema.innodb_trx t "
                f"LEFT JOIN {self._sessions(connection)} p ON p.id = t.trx_mysql_thread_id "
                "WHERE t.trx_mysql_thread_id <> CONNECTION_ID() HAVING seconds > :seconds ORDER BY "
                "seconds DESC LIMIT :shown"
            ),
            {"seconds": scope.transaction_seconds, "shown": SHOWN},
        )
        for row in rows:
            yield Finding(
                "long-transaction",
                Severity.SLOW,
                f"thread {row.id}",
                f"{row.user}@{row.host} has had a transaction open for "
                f"{lasting(float(row.seconds))} ({row.state.lower()}, {row.locked:,} rows locked). "
                "The purge waits for it, and so do the entries that it has posted or locked.",
                f"End it in that program, or: KILL {row.id}",
            )

    def _sessions(self, connection: Connection) -> str:
        """The table of the server's sessions."""
        return sessions_of(connection)

    def keys(self, connection: Connection, tables: Sequence[str]) -> dict[str, Keys]:
        """See `Doctor`."""
        found = {table: Keys() for table in tables}
        for row in _index_columns(connection, tables):
            keys = found[row["TABLE_NAME"]]
            if row["INDEX_NAME"] == "PRIMARY":
                keys.primary.append(row["COLUMN_NAME"])
            else:
                keys.indices.setdefault(row["INDEX_NAME"], []).append(row["COLUMN_NAME"])
        return found

    def faults(self, plan: Sequence[Mapping[str, Any]], table: str) -> Iterator[Fault]:
        """See `Doctor`."""
        for row in plan:
            # The table that an INSERT fills is shown as one that is scanned by MySQL.
            if row["select_type"] == "INSERT":
                continue
            if row["table"] == table and row["type"] in {"ALL", "index"}:
                step = Step.SCAN if row["type"] == "ALL" else Step.WALK
                yield Fault(step, f"type {row['type']}, key {row['key']}")
            if "filesort" in str(row["Extra"]):
                yield Fault(Step.SORT, str(row["Extra"]))

    def connection_limits(self, connection: Connection) -> list[ConnectionLimit]:
        """See `Doctor`."""
        counts = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Threads_connected'")).one()
        most = int(_variables(connection, ["max_connections"])["max_connections"])
        server = ConnectionLimit(
            "the server",
            most,
            int(counts[1]),
            f"SET GLOBAL max_connections = {2 * most}, and in its file",
        )
        # The session's value is the account's own limit, else that of all accounts; 0 is none.
        user, own, used = connection.execute(
            text(
                "SELECT CURRENT_USER(), @@SESSION.max_user_connections, COUNT(*) "  # noqa: S608 -- a name of ours
                f"FROM {self._sessions(connection)} "
                "WHERE USER = SUBSTRING_INDEX(USER(), '@', 1)"
            )
        ).one()
        cure = f"ALTER USER … WITH MAX_USER_CONNECTIONS {2 * own}"
        return [
            server,
            *([ConnectionLimit(f"the user {user}", own, used, cure)] if own > 0 else []),
        ]
