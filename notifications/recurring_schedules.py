"""Recurring schedules: one firing per due time in the whole cluster, however many nodes run.

All nodes that serve the queue watch its schedules; the one that moves `last_due` on also inserts
the notification, in the same transaction. A key on the notification would not do, since it leaves
the table when it is handled.

A schedule whose notification can't be inserted, or that somebody has locked, stays where it is, and
is tried again later. Meanwhile the others fire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from queue_core.engine import QueueEngine
from queue_core.model.posting import Posting
from queue_core.model.recurrence import Recurrence
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.log import get_logger
from queue_core.runtime.loop import Loop
from queue_core.storage.brief_waits import LockRefusedError
from queue_core.storage.put_off_schedules import (
    LOCK_SECONDS,
    PutOffSchedules,
    failed_firing,
    told_of,
)
from queue_core.storage.schedules import ScheduleStore, StoredSchedule
from queue_core.storage.search_keys import columns_of

log = get_logger(__name__)


@dataclass(frozen=True)
class Schedule:
    """One recurring schedule. Dates are aware, in UTC.

    Attributes:
        queue_name: Its queue, as `service:queue`.
        name: The name that it was declared with.
        recurrence: Its rule.
        class_name: The event name of its notifications.
        last_due: The due date of the last firing; None before the first.
        next_due: The next due date; None if it never fires again.
    """

    queue_name: str
    name: str
    recurrence: Recurrence
    class_name: str
    last_due: datetime | None
    next_due: datetime | None


class RecurringSchedules:
    """The recurring schedules of one service; `queue_names` gives the queues started here."""

    def __init__(self, engine: QueueEngine, queue_names: Callable[[], Sequence[str]]) -> None:
        self._engine = engine
        self._store = engine.store
        self.stored = ScheduleStore(engine.store)
        self._queue_names = queue_names
        self._unreadable = set[StoredSchedule]()
        self._failed = PutOffSchedules(engine.store.clock)
        self._loop = Loop(f"{engine.config.table}-schedules", self.turn, engine.store.clock)

    def start(self) -> None:
        """Fire all due schedules, from now on."""
        self._loop.start()

    def stop(self) -> None:
        """Fire nothing more."""
        self._loop.stop()

    def wake(self) -> None:
        """Look at the schedules now."""
        self._loop.wake()

    def put(
        self,
        queue_name: str,
        name: str,
        recurrence: Recurrence,
        posting: Posting,
        callers: CallersConnection | None = None,
    ) -> Schedule:
        """Add a schedule, or change its rule or payload; one with other dates starts now.

        Every node may do this at its start: a rule with the same dates leaves the schedule where it
        stands. In the caller's transaction, nodes see it at the first look after the commit.
        """
        store = self._store
        keys = store.rows.keys(
            queue_name, search_key1=posting.search_key1, search_key2=posting.search_key2
        )
        payload = store.rows.payload(queue_name, posting) | columns_of(keys, None)
        fresh = {
            "rule": recurrence.to_text(),
            "last_due": None,
            "next_due": recurrence.next_after(None, store.now(callers)),
        }
        stored = self.stored.put(
            queue_name,
            name,
            payload,
            fresh,
            going_on=recurrence.going_on_from,
            callers=callers,
        )
        self._failed.try_again(queue_name, [name])
        if callers is None:
            self.wake()
        return _schedule(stored, recurrence)

    def remove(self, queue_name: str, name: str, callers: CallersConnection | None = None) -> bool:
        """Remove a schedule; notifications that it has fired stay. False if there was none."""
        return self.stored.remove(queue_name, name, callers)

    def of(self, queue_name: str, callers: CallersConnection | None = None) -> list[Schedule]:
        """The schedules of a queue, by name; without those whose rule can't be read."""
        return [
            _schedule(stored, recurrence)
            for stored in self.stored.of([queue_name], callers)
            if (recurrence := Recurrence.read(stored.rule)) is not None
        ]

    def turn(self) -> float:
        """Fire all due schedules. One turn; returns seconds until the next."""
        longest = self._engine.config.poll_interval_seconds
        queues = self._queue_names()
        if not queues or not self._engine.lifecycle.running:
            return longest
        now = self._store.clock.now()
        coming = list[datetime]()
        failed = {(queue, name) for queue in queues for name in self._failed.put_off_of(queue)}
        # Those that have failed may wait for a lock: the others fire first.
        for stored in sorted(self.stored.of(queues), key=lambda one: _key(one) in failed):
            if stored.next_due is None:
                continue
            if stored.next_due > now:
                coming.append(stored.next_due)
            elif (left := self._failed.put_off_of(stored.queue_name).get(stored.name, 0.0)) > 0:
                coming.append(now + timedelta(seconds=left))
            elif (error := self._try(stored, now, brief=bool(failed))) is not None:
                failed.add(_key(stored))
                coming.append(now + timedelta(seconds=self._put_off(stored, error)))
            elif stored not in self._unreadable:
                longest = 0.0  # look at once when it is due next
        left = (min(coming) - self._store.clock.now()).total_seconds() if coming else longest
        return max(0.0, min(longest, left))

    def _try(self, stored: StoredSchedule, now: datetime, *, brief: bool) -> BaseException | None:
        """Fire a due schedule; returns its error."""
        try:
            self.fire(stored, now, lock_seconds=LOCK_SECONDS if brief else None)
        except (LockRefusedError, SQLAlchemyError) as error:
            return failed_firing(self._store.database, error)
        self._failed.try_again(stored.queue_name, [stored.name])
        return None

    def _put_off(self, stored: StoredSchedule, error: BaseException) -> float:
        """Let a schedule that has failed be for a while; returns the seconds."""
        seconds = self._failed.put_off(stored.queue_name, stored.name)
        log.error(
            "schedule_failed",
            queue_name=stored.queue_name,
            schedule=stored.name,
            **told_of(error),
            pause_seconds=seconds,
        )
        return seconds

    def fire(
        self, stored: StoredSchedule, now: datetime, lock_seconds: float | None = None
    ) -> None:
        """Insert the notifications of a due schedule, unless another node has.

        Nothing is done if its rule can't be read. `lock_seconds`: see `ScheduleStore.fire`.
        """
        recurrence = Recurrence.read(stored.rule)
        due = recurrence.due_in_calendar(stored.last_due, now) if recurrence is not None else None
        if due is None:
            if stored not in self._unreadable:
                log.error("schedule_unreadable", queue_name=stored.queue_name, schedule=stored.name)
            self._unreadable.add(stored)
            return
        dates, next_due = due
        lifecycle = self._engine.lifecycle
        fired = self.stored.fire(
            stored,
            dates,
            last_due=dates[-1] if dates else now,
            next_due=next_due,
            creator=lifecycle.name,
            lane=lifecycle.holdings.return_lane,
            lock_seconds=lock_seconds,
        )
        if fired and dates:
            log.info(
                "schedule_fired",
                queue_name=stored.queue_name,
                schedule=stored.name,
                due=dates[-1].isoformat(),
                firings=len(dates),
            )
            lifecycle.claimer.wake()


def _key(stored: StoredSchedule) -> tuple[str, str]:
    return stored.queue_name, stored.name


def _schedule(stored: StoredSchedule, recurrence: Recurrence) -> Schedule:
    return Schedule(
        stored.queue_name,
        stored.name,
        recurrence,
        stored.class_name,
        stored.last_due,
        stored.next_due,
    )
