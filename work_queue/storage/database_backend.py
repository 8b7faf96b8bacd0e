"""The work queue on a database, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine

from queue_core.claiming.hint_sender import HintSender
from queue_core.opening import open_checked
from queue_core.runtime.arguments import is_number, not_allowed, of_kind
from queue_core.runtime.clock import Clock
from queue_core.storage.brief_waits import LockRefusedError, briefly
from queue_core.storage.callers_connection import Borrowed
from queue_core.storage.transactions import Transactions, clock_of
from sql.families import (
    WORK_COUNTS,
    WORK_DOCS,
    WORK_HISTORY,
    WORK_LIMITS,
    WORK_SCHEDULES,
    WORK_TASKS,
)
from work_queue.document import DocSet
from work_queue.faults import DependencyError
from work_queue.metrics import QUEUES, TABLE, Metrics
from work_queue.modification import Action
from work_queue.modified import Modified
from work_queue.requests import DocClaimRequest, NameQuery
from work_queue.storage.caller import Caller, Look
from work_queue.storage.claims import Claims
from work_queue.storage.doc_claims import LOCK_SECONDS, claim_docs, locked_elsewhere
from work_queue.storage.firings import Firings
from work_queue.storage.folding import Folding
from work_queue.storage.history import Histories
from work_queue.storage.limits import Limits
from work_queue.storage.modifying import Modification, Statements
from work_queue.storage.moment import Moment
from work_queue.storage.places import Places
from work_queue.storage.reads import Reads
from work_queue.storage.schedules import Schedules
from work_queue.storage.waiting import WaitingRoom, payload_of
from work_queue.storage.waits import Waits

CLOCK_SECONDS = 30.0
"""For how long a reading of the database's clock is good."""
POLL_SECONDS, DEAF_POLL_SECONDS = 5.0, 0.25
"""How often a claim that waits looks at least; the latter where commits of others are not heard."""
LONGEST_POLL_SECONDS = 86_400.0
"""The longest pause between two polls that may be set: a day."""
COMMIT_SECONDS = 0.01
"""What a COMMIT may take that was announced, where nobody hears of it."""


class DatabaseBackend:
    """See `Backend`."""

    takes_connections = True

    def __init__(
        self,
        database: str | URL | Engine,
        *,
        poll_seconds: float | None = None,
        max_value_bytes: int,
        clock: Clock | None = None,
        metrics: Metrics,
    ) -> None:
        if clock is not None:
            of_kind(clock, Clock, key="clock")
        if poll_seconds is not None and not (
            is_number(poll_seconds) and 0 < poll_seconds <= LONGEST_POLL_SECONDS
        ):
            raise not_allowed("poll_seconds", poll_seconds, "seconds above 0, up to a day, or None")
        if not is_number(max_value_bytes) or max_value_bytes < 1:
            raise not_allowed("max_value_bytes", max_value_bytes, "1 or more")
        opened = self.database = open_checked(database, ())
        dialect = opened.dialect
        schema = opened.fetch(lambda connection: dialect.schema_of(connection, TABLE))
        transactions = self._transactions = Transactions(
            opened,
            clock or clock_of(opened),
            table=TABLE,
            schema=schema,
            clock_seconds=CLOCK_SECONDS,
        )
        self.statements = Statements(
            dialect.statements_for(WORK_TASKS)(schema),
            dialect.statements_for(WORK_HISTORY)(schema),
            dialect.statements_for(WORK_LIMITS)(schema),
            dialect.statements_for(WORK_SCHEDULES)(schema),
            dialect.statements_for(WORK_DOCS)(schema),
            dialect.statements_for(WORK_COUNTS)(schema),
        )
        self._cap_bytes = max_value_bytes
        self._hears = dialect.capabilities.hears_commits
        poll = POLL_SECONDS if self._hears else DEAF_POLL_SECONDS
        self._hints = HintSender(transactions, TABLE)
        self.room = WaitingRoom(transactions, TABLE, poll_seconds or poll)
        self._metrics = metrics
        places = Places(transactions, self.statements.tasks, self.statements.limits)
        self._firings = Firings(transactions, self.statements, self._written)
        schedules = Schedules(transactions, self.statements, max_value_bytes, self._rescheduled)
        self.set_schedule = schedules.set
        self.remove_schedule = schedules.remove
        self.schedules = schedules.read
        self.claims = Claims(transactions, self.statements.tasks, places, self._firings, metrics)
        self._waits = Waits(self.claims, self.room, self._tell, transactions.clock)
        self.folding = Folding(transactions, self.statements.counts)
        self._reads = Reads(transactions, self.statements, self.folding)
        self.tasks = self._reads.tasks
        self.docs = self._reads.docs
        self.queues = self._reads.queues
        self.queue_stats = self._reads.queue_stats
        self.namespace_stats = self._reads.namespace_stats
        histories = Histories(transactions, self.statements.history)
        self.set_history = histories.set
        self.histories = histories.kept
        self.finished_tasks = histories.finished
        self.delete_history = histories.delete
        stored_limits = Limits(transactions, self.statements.limits, self._tell)
        self.set_limit = stored_limits.set
        self.remove_limit = stored_limits.remove
        self.limits = stored_limits.read
        self.try_claim = self.claims.take
        self.claim = self._waits.claim
        self.claim_async = self._waits.claim_async
        self.try_claim_async = self._waits.try_claim_async
        metrics.watch(partial(self._reads.queue_stats, NameQuery(limit=QUEUES)))

    def modify(self, claimant: str, actions: Sequence[Action], connection: Any) -> Modified:
        """See `Backend.modify`."""
        modification = Modification(actions, self._cap_bytes)
        if connection is not None:
            return self._modify_inside(claimant, modification, connection)
        self._transactions.keep_time()
        with self._metrics.modification():
            modified = self._modify(claimant, modification)
        self._written(modification)
        return modified

    def _modify(self, claimant: str, modification: Modification) -> Modified:
        transactions, statements = self._transactions, self.statements

        def end(connection: Connection) -> Modified | None:
            return modification.end(connection, statements, self._moment(claimant))

        def run(connection: Connection) -> Modified:
            return modification.run(connection, statements, self._moment(claimant))

        if modification.is_lone_delete and statements.tasks.ends_at_once():
            database = transactions.database
            ended = transactions.reaching(
                lambda: database.write_autocommit(end, lambda _, modified: modified)
            )
            if ended is not None:
                return ended
        return transactions.write(None, TABLE, run)

    def _written(self, modification: Modification) -> None:
        """Tell of what a modification has committed."""
        self._metrics.kept(modification.kept)
        if modification.arrivals:
            self.room.arrive(modification.arrivals)
        if modification.freed:
            self.room.tell(modification.freed)
        for queue in modification.queues:
            self._hints.tell(payload=payload_of(queue))
        self.folding.added(modification.counted)

    def _modify_inside(
        self, claimant: str, modification: Modification, connection: Any
    ) -> Modified:
        transactions = self._transactions
        transactions.keep_time(connection)
        borrowed = transactions.borrow(connection)
        with self._metrics.modification():
            modified = transactions.inside_borrowed(
                borrowed,
                TABLE,
                lambda inner: modification.run(
                    inner,
                    self.statements,
                    self._moment(claimant),
                    self._caller(),
                ),
            )
        self._metrics.kept(modification.kept)
        self.folding.added_elsewhere(modification.counted)
        self._tell_inside(borrowed, modification)
        return modified

    def _caller(self) -> Caller:
        dialect = self._transactions.database.dialect
        one_writer = dialect.capabilities.one_writer
        look: Look = partial(self._transactions.read, None, TABLE)
        return Caller(dialect.part, None if one_writer else look)

    def _tell_inside(self, borrowed: Borrowed, modification: Modification) -> None:
        """Let claims look when the caller's transaction has committed."""
        queues = modification.queues
        for queue in queues:
            self._hints.tell_inside(borrowed, payload_of(queue))
        if self._hears or not queues:
            return

        def announced() -> None:
            soon = self._transactions.clock.now() + timedelta(seconds=COMMIT_SECONDS)
            self.room.arrive([(queue, soon) for queue in queues])

        if borrowed.announces:
            borrowed.when_ended(announced)

    def _tell(self, queue: str) -> None:
        """Let a claim look that waits for a queue, here or elsewhere."""
        self.room.tell([queue])
        self._hints.tell(payload=payload_of(queue))

    def _rescheduled(self, queue: str) -> None:
        self._firings.retry(queue)
        self._tell(queue)

    def claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        """See `Backend.claim_docs`."""
        self._transactions.keep_time()

        def claimed(connection: Connection) -> list[DocSet]:
            moment = self._moment(request.claimant)
            return claim_docs(
                connection, self.statements.tasks, self.statements.docs, request, moment
            )

        work: Callable[[Connection], list[DocSet]] = claimed
        if request.until is not None:  # its lease runs
            work = briefly(self.database.dialect, claimed, LOCK_SECONDS)
        with self._metrics.refusal():
            try:
                return self._transactions.write(None, TABLE, work)
            except LockRefusedError as error:
                docs = self.statements.docs
                raise self._transactions.read(
                    None, TABLE, lambda connection: locked_elsewhere(connection, docs, request)
                ) from error

    async def claim_docs_async(self, request: DocClaimRequest) -> list[DocSet]:
        """See `Backend.claim_docs_async`."""
        return await self._waits.seen(lambda: self.claim_docs(request), self._release)

    def _release(self, sets: list[DocSet]) -> None:
        with suppress(DependencyError):  # somebody has them
            self.modify(sets[0].claimant, [docs.release() for docs in sets], None)

    def time(self) -> datetime:
        """See `Backend.time`."""
        return self._transactions.read(None, TABLE, self._transactions.read_time)

    def close(self) -> None:
        """See `Backend.close`. In a child process of a fork only its memory is let go."""
        self._metrics.close()
        if not self._transactions.forked:
            self.room.close()
            self._waits.settle()
            self._hints.close()
        self.database.close()

    def _moment(self, claimant: str) -> Moment:
        return Moment(self._transactions.clock.now(), claimant)
