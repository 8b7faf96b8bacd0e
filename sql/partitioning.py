"""The division of history into partitions, while the queue runs.

A change of the partitions of a history holds its named lock (`Database.holding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Table
from sqlalchemy.exc import SQLAlchemyError

from sql.database import Database
from sql.partitions import MARGIN, Partition, Span, spans
from sql.period import Period
from sql.transient import UPGRADE_STEP, Patience

LOCK_SECONDS = 0.05
"""The longest that one try of a change waits for its lock, where a server takes less than a second.

Outcomes that come meanwhile wait behind it.
"""
PAUSE_SHARE = 10
"""How many times as long as a try the pause after it is. Outcomes are written in the pause."""
DROP = Patience(seconds=30.0, pause_seconds=0.1, longest_pause_seconds=2.0)
"""The drop of a partition. Its rows can be deleted in batches, if a reader of history stays."""
BRIEFLY = Patience(seconds=5.0)
"""A change that a later look makes up for."""
COUNTED = 10_000
"""Rows of a dropped partition that are counted; of more the database's statistics tell."""


def partitions(database: Database, past: Table) -> list[Partition]:
    """The partitions of a history, the oldest first; none if it is not divided."""
    return database.fetch(lambda connection: database.dialect.partitions.found(connection, past))


def divide(
    database: Database, connection: Connection, past: Table, *, period: Period, now: datetime
) -> list[Partition]:
    """Divide a history by a period, or go on by that one if it is divided already.

    Returns the partitions that it has then.
    """
    if partitions(database, past):
        make_ahead(database, connection, past, now=now, period=period)
    else:
        wanted = spans(period, period.end(now + MARGIN), now)
        ways = database.dialect.partitions
        step = partial(ways.divide, connection, past, wanted)
        try:
            _change(database, connection, step, UPGRADE_STEP)
        except BaseException:
            with suppress(SQLAlchemyError):  # nodes and truncations will do it
                drop_leftover(database, connection, past)
            raise
    return partitions(database, past)


def leftover(database: Database, past: Table) -> str | None:
    """The constraint that a division which was cut off has left on a history; None if none has."""
    return database.fetch(partial(database.dialect.partitions.leftover, past=past))


def drop_leftover(database: Database, connection: Connection, past: Table) -> bool:
    """Drop the constraint that a division which was cut off has left. False if there is none."""
    if leftover(database, past) is None:
        return False
    drop = partial(database.dialect.partitions.drop_leftover, connection, past)
    _change(database, connection, drop, BRIEFLY)
    return True


def are_missing(database: Database, past: Table, *, now: datetime) -> bool:
    """Whether a divided history lacks partitions ahead of `now`."""
    return bool(_missing(partitions(database, past), now))


def make_ahead(
    database: Database,
    connection: Connection,
    past: Table,
    *,
    now: datetime,
    period: Period | None = None,
    patience: Patience = UPGRADE_STEP,
) -> int:
    """Make the partitions that are missing ahead of `now`, by their own period if none is given.

    Returns how many were made.
    """
    ways, missing = database.dialect.partitions, _missing(partitions(database, past), now, period)
    for span in missing:
        _change(database, connection, partial(ways.add, connection, past, span), patience)
    return len(missing)


def _missing(found: Sequence[Partition], now: datetime, period: Period | None = None) -> list[Span]:
    ended = [(one, one.until) for one in found if one.until is not None]
    if not ended:
        return []
    newest, since = ended[-1]
    by = period or newest.period
    return [] if by is None else spans(by, since, now)


def drop_ended(
    database: Database, connection: Connection, past: Table, *, before: datetime
) -> Iterator[int]:
    """Drop the partitions all of whose rows ended before a date, one with each step.

    The newest that has an end stays: its name tells by which period the next are made.

    Yields the number of rows of each; of a partition with more than `COUNTED` it is a guess. Raises
    DBAPIError if a lock was not had in time.
    """
    ways = database.dialect.partitions
    ended = [one for one in partitions(database, past) if one.until is not None]
    for one in ended[:-1]:
        if one.until is not None and one.until > before:
            break
        counted = database.fetch(partial(ways.count, past=past, partition=one, most=COUNTED + 1))
        rows = max(counted, one.rows) if counted > COUNTED else counted
        _change(database, connection, partial(ways.drop, connection, past, one), DROP)
        yield rows


def _change(
    database: Database, connection: Connection, change: partial[None], patience: Patience
) -> None:
    connection.rollback()
    with database.dialect.impatient(connection, LOCK_SECONDS) as seconds:
        pausing = replace(patience, shortest_pause_seconds=PAUSE_SHARE * seconds)
        database.persist(change, pausing, connection.rollback)
