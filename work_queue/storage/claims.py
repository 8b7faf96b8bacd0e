"""Claims of tasks: which queue is tried, and which tasks are taken from it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.storage.transactions import Transactions
from sql.statements.work.tasks import WorkTasks
from work_queue.metrics import Metrics
from work_queue.requests import ClaimRequest
from work_queue.storage.firings import Firings
from work_queue.storage.places import Places, Room
from work_queue.storage.rows import task_of_values
from work_queue.task import Task


class Looked(NamedTuple):
    """What a look for tasks has found.

    Attributes:
        taken: What was claimed.
        arrivals: If nothing was: when there may be something in each queue that has a task, or a
            schedule. A date that has passed: by now, or it is locked.
    """

    taken: list[Task]
    arrivals: dict[str, datetime]


class Claims:
    """Takes tasks, each claim in a transaction of its own."""

    def __init__(
        self,
        transactions: Transactions,
        tasks: WorkTasks,
        places: Places,
        firings: Firings,
        metrics: Metrics,
    ) -> None:
        self._transactions = transactions
        self._tasks = tasks
        self._places = places
        self._firings = firings
        self._metrics = metrics

    def take(self, request: ClaimRequest) -> list[Task]:
        """Claim tasks that are available now."""
        return self.look(request).taken

    def look(self, request: ClaimRequest) -> Looked:
        """Claim from one of the queues that have an available task, drawn at random.

        So each queue gets its share of the claims, whatever its length. A queue whose limit has no
        place is passed over. Due tasks of schedules are inserted first.
        """
        queues, ready = request.queues, list(request.queues)
        arrivals, full, seen_to = dict[str, datetime](), dict[str, datetime](), set[str]()
        if len(queues) > 1:
            arrivals, seen_to = self._arrivals(queues)
            ready = self._available(queues, arrivals)
            random.shuffle(ready)
        unknown = [queue for queue in ready if queue not in self._places.queues]
        taken = self._take_from(ready, request, full, seen_to)
        if taken or not ready:
            return Looked(taken, arrivals)
        arrivals, seen_to = self._arrivals(queues)
        left = self._available([*seen_to.difference(unknown), *unknown], arrivals)
        if left:
            again = seen_to.union(self._places.learn(left)).intersection(left)
            taken = self._take_from(again, request, full, seen_to)
        return Looked(taken, arrivals | full)

    def _available(self, queues: Sequence[str], arrivals: Mapping[str, datetime]) -> list[str]:
        now = self._transactions.clock.now()
        return [queue for queue in queues if queue in arrivals and arrivals[queue] <= now]

    def _take_from(
        self,
        queues: Iterable[str],
        request: ClaimRequest,
        full: dict[str, datetime],
        seen_to: Collection[str],
    ) -> list[Task]:
        """Claim from the first of the queues that has something; note those that are `full`.

        `seen_to`: queues that have schedules, of which all that can be is inserted by now.
        """
        for queue in queues:
            rows, until = self._take(queue, request, unless_due="" if queue in seen_to else queue)
            if rows:
                taken = [task_of_values(row) for row in rows]
                self._metrics.claimed(queue, len(taken))
                return taken
            if until is not None:
                full[queue] = until
        return []

    def _take(
        self, queue: str, request: ClaimRequest, *, unless_due: str
    ) -> tuple[list[Sequence[object]], datetime | None]:
        """The rows of the claimed tasks; if a limit has no place, when it may have one again."""
        places, limited = self._places, queue in self._places.queues

        def work(connection: Connection) -> tuple[list[Sequence[object]], datetime | None]:
            limit = request.limit
            room = places.room(connection, queue, limit) if limited else Room(limit)
            if not room.free:
                return [], room.until
            now = self._transactions.clock.now()  # anew in each try: it may have waited
            claim = {
                "of_queue": queue,
                "unless_limited": "" if limited else queue,
                "unless_due": unless_due,
                "limit": room.free,
                "now": now,
                "until": now + timedelta(seconds=request.lease_seconds),
                "by": request.claimant,
            }
            rows = self._tasks.claim(connection, claim)
            places.take(connection, queue, room, len(rows))
            return rows, None

        self._transactions.keep_time()
        database = self._transactions.database
        return self._transactions.reaching(
            lambda: (
                database.write_autocommit(work, lambda _, taken: taken)
                if self._tasks.takes_at_once(request.limit) and not limited
                else database.write(work)
            )
        )

    def _arrivals(self, queues: Sequence[str]) -> tuple[dict[str, datetime], set[str]]:
        """When there may be something in each queue that has a task, or a schedule.

        With the queues that have a schedule; what is due is inserted by now, here or elsewhere, or
        can't be.
        """
        coming = self._transactions.read(
            None, queues[0], lambda connection: self._tasks.coming(connection, queues)
        )
        now = self._transactions.clock.now()
        arrivals, scheduled = dict[str, datetime](), set[str]()
        for queue, arrival, next_due in coming:
            dates = [arrival, next_due]
            if next_due is not None:
                scheduled.add(queue)
                if next_due <= now:
                    dates[1] = self._firings.insert_due(queue)
            if known := [date for date in dates if date is not None]:
                arrivals[queue] = min(known)
        return arrivals, scheduled

    def give_back(self, taken: Sequence[Task]) -> None:
        """Undo a claim whose tasks nobody has seen."""
        named = [(task.id, task.version) for task in taken]
        now = self._transactions.now()
        self._transactions.write(
            None,
            taken[0].queue,
            lambda connection: self._tasks.give_back(connection, named, now),
        )
