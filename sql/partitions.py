"""Partitions of history: each holds the entries that ended in one day, month or year.

To drop one costs no more than to drop a table. The partitions of a history are those in the
database's catalogue, and their names tell the period by which they were made: no other record of
them is kept.

Entries that ended before a history was divided are in one partition, without a beginning. A last
one, without an end, takes the rows that no other takes, so that an entry ends although nobody has
made the next partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, Table, func, select

from sql.period import Period

AHEAD = 3
"""Partitions that are made ahead of the current one."""
MARGIN = timedelta(days=1)
"""Entries that end during a division end no later than that."""


@dataclass(frozen=True)
class Partition:
    """A partition of a history.

    Attributes:
        name: Its name in the database.
        until: The date before which all its rows ended; None for the last one.
        rows: Its rows, as the database's statistics guess.
    """

    name: str
    until: datetime | None = None
    rows: int = 0

    @property
    def period(self) -> Period | None:
        """The period for which it was made; None for the first and the last one."""
        letter = self.name.rpartition("_")[2][:1]
        return next((period for period in Period if period[0] == letter), None)


FIRST, LAST = "before", "later"
"""Ends of the names of the first and the last partition. No period begins with their letters."""


@dataclass(frozen=True)
class Span:
    """A period for which a partition is to be made."""

    period: Period
    since: datetime
    until: datetime

    @property
    def stem(self) -> str:
        """The end of its partition's name."""
        return f"{self.period[0]}{self.since:%Y%m%d}"


def spans(period: Period, since: datetime, now: datetime) -> list[Span]:
    """The periods from the one of `since` to the last that is to be made ahead of `now`."""
    last = now
    for _ in range(AHEAD):
        last = period.end(last)
    found = list[Span]()
    while since <= last:
        until = period.end(since)
        found.append(Span(period, since, until))
        since = until
    return found


class Partitions:
    """The partitions of a history in a database: here, in one that has none.

    Statements that change them wait for locks no longer than the session does
    (`Dialect.impatient`), and none of them waits for the rows of others.
    """

    supported = False

    def found(self, connection: Connection, past: Table) -> list[Partition]:
        """The partitions of a history, the oldest first; none if it is not divided."""
        del connection, past
        return []

    def divide(self, connection: Connection, past: Table, wanted: Sequence[Span]) -> None:
        """Divide a history.

        Its rows are before the first span. Commits. If it raises, there may be a `leftover`.
        """
        raise NotImplementedError

    def obstacle(self, connection: Connection, past: Table) -> str | None:
        """What a history has that a division would lose, as a message says it; None if nothing."""
        del connection, past
        return None

    def leftover(self, connection: Connection, past: Table) -> str | None:
        """The constraint that a division sets for its time, where one that was cut off left it.

        Soon it refuses all outcomes. None if there is none.
        """
        del connection, past
        return None

    def drop_leftover(self, connection: Connection, past: Table) -> None:
        """Drop that constraint. Commits."""
        raise NotImplementedError

    def add(self, connection: Connection, past: Table, span: Span) -> None:
        """Make a partition after all others but the last, whose rows of that time it takes.

        Commits.
        """
        raise NotImplementedError

    def count(self, connection: Connection, past: Table, partition: Partition, most: int) -> int:
        """The number of rows of a partition, or `most` if it has more."""
        rows = self.rows(past, partition).limit(most).subquery()
        return int(connection.execute(select(func.count()).select_from(rows)).scalar_one())

    def rows(self, past: Table, partition: Partition) -> Select[Any]:
        """Selects a 1 for each row of a partition."""
        raise NotImplementedError

    def drop(self, connection: Connection, past: Table, partition: Partition) -> None:
        """Drop a partition with its rows. Commits."""
        raise NotImplementedError
