"""The division of a history into partitions, as an administrator asks for it."""

from __future__ import annotations

from functools import partial

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine
from sqlalchemy.exc import IntegrityError

from queue_core.errors import ConfigurationError, LifecycleError
from queue_core.model.names import table_fault
from queue_core.opening import open_existing, refuse_misfit
from queue_core.runtime.arguments import not_allowed
from sql import partitioning, schema
from sql.database import Database
from sql.partitions import Partition
from sql.period import Period
from sql.tables import entry_tables


def partition_history(
    url: str | URL | SqlalchemyEngine, *, by: Period | str, table: str = "bus_events"
) -> list[Partition]:
    """Divide a history into partitions by day, month or year, while its queues run.

    `truncate_history` then drops those that are old as a whole, however many rows they have. Nodes
    make the next ones ahead. Entries that have ended by now stay together in one partition. Called
    for a history that is divided already, it makes the next partitions, by the period given.

    PostgreSQL copies no row. MySQL and MariaDB copy the history, and outcomes wait meanwhile.

    Args:
        url: A URL, as a text or SQLAlchemy's, or an Engine, whose URL and way to connect are taken.
        by: day, month or year, in UTC.
        table: The main table. Default: `bus_events`.

    Returns:
        The partitions of the history, the oldest first.

    Raises:
        ConfigurationError: An argument is not allowed, the database has no partitions, or the
            history has what a division would lose.
        SchemaError: There is no such table, or its schema is of another version.
        LifecycleError: Another call truncates, archives or forgets this history.
        DatabaseUnreachableError: The database does not answer.
        sqlalchemy.exc.SQLAlchemyError: The driver's error for anything else, such as a missing
            right.

    Example:
        >>> stickybus.partition_history("postgresql://shop@db/shop", by="month")
    """
    fault = table_fault(table)
    if fault:
        raise not_allowed("table", table, fault)
    if by not in list(Period):
        raise not_allowed("by", by, ", ".join(Period))
    database = open_existing(url, statement_timeout_seconds=schema.STEP_SECONDS)
    try:
        return _divided(database, table, Period(by))
    finally:
        database.close()


def _divided(database: Database, table: str, period: Period) -> list[Partition]:
    if not database.dialect.partitions.supported:
        raise ConfigurationError(
            f"{database.dialect.name} has no partitions. Nothing was changed; truncate_history "
            "deletes in batches.",
            key="database",
        )
    report = database.fetch(lambda connection: schema.check(connection, (table,)))
    refuse_misfit(database, report)
    ways = database.dialect
    past = entry_tables(
        table, schema=database.fetch(lambda connection: ways.schema_of(connection, table))
    ).history
    with database.holding(past.name) as connection:
        if connection is None:
            raise LifecycleError(
                f"{past.name}: a truncation, archive or forgetting is under way. Nothing was "
                "changed. Call again when it has ended.",
                table=past.name,
            )
        obstacle = database.fetch(partial(ways.partitions.obstacle, past=past))
        if obstacle is not None and not partitioning.partitions(database, past):
            raise ConfigurationError(
                f"{past.name} has {obstacle}, which the divided table would lack. Nothing was "
                "changed. Drop them, call again, and give them to the divided table.",
                key="table",
                value=table,
            )
        now = database.fetch(ways.database_now)
        try:
            return partitioning.divide(database, connection, past, period=period, now=now)
        except IntegrityError as error:
            raise ConfigurationError(
                f"{past.name} has rows with a finished_date that is yet to come: {error.orig}. "
                "Nothing was changed. Correct or delete these rows, and call again.",
                key="table",
                value=table,
            ) from error
