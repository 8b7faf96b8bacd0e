"""The places of limited queues: claims take them, in their own transaction, under one lock.

A place is a lease that stands. Nobody gives one back, and none is counted anywhere: a task that is
deleted, released or put off has no lease, and one whose lease has ended has none either.

The transaction that claims locks the row of the limit, counts the leases of the queue, and takes no
more tasks than are missing. So the leases never are more than the limit says, whoever dies and
when. The row is read under the lock: a changed limit holds for the next claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.model.rate import Rate
from queue_core.storage.transactions import Transactions
from sql.statements.work.limits import WorkLimits
from sql.statements.work.tasks import WorkTasks

FIRST_DATE = datetime.min.replace(tzinfo=UTC)


class Room(NamedTuple):
    """What a claim may take of a queue.

    Attributes:
        free: How many tasks.
        until: When there may be more, as far as is known.
        rate: The rate of the limit; its date was `arrival` at the time `now`.
    """

    free: int
    until: datetime | None = None
    rate: Rate | None = None
    arrival: datetime = FIRST_DATE
    now: datetime = FIRST_DATE


class Places:
    """The places of the queues of one database."""

    def __init__(self, transactions: Transactions, tasks: WorkTasks, limits: WorkLimits) -> None:
        self._transactions = transactions
        self._tasks = tasks
        self._limits = limits
        self.queues = set[str]()
        """The limited queues, as far as is known. A claim of one that is not takes nothing."""

    def learn(self, queues: Sequence[str]) -> list[str]:
        """Look which of these queues are limited."""
        found = self._transactions.read(
            None, queues[0], lambda connection: self._limits.among(connection, queues)
        )
        self.queues |= found
        return [queue for queue in queues if queue in found]

    def room(self, connection: Connection, queue: str, wanted: int) -> Room:
        """Lock the limit of a queue, and count its free places, `wanted` at most."""
        terms = self._limits.terms(connection, queue)
        if terms is None:  # it has just been removed
            self.queues.discard(queue)
            return Room(wanted)
        free, until = wanted, None
        if terms.concurrency is not None:
            now = self._transactions.clock.now()
            taken, until = self._tasks.leases(connection, queue, now)
            free = min(free, max(0, terms.concurrency - taken))
        rate = Rate.of(terms.rate, terms.per_microseconds, terms.burst)
        if rate is None or not free:
            return Room(free, until)
        now, arrival = self._transactions.read_time(connection), terms.arrival_date or FIRST_DATE
        allowed = rate.free(arrival, now)
        return Room(min(free, allowed), rate.next(arrival, now), rate, arrival, now)

    def take(self, connection: Connection, queue: str, room: Room, places: int) -> None:
        """Take places, of which there are enough: the leases themselves tell it, but no rate."""
        if room.rate is not None and places:
            date = room.rate.after(room.arrival, room.now, places)
            self._limits.arrived(connection, queue, date)
