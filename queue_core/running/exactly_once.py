"""Exactly-once effects: a handler's own transaction also records the entry's outcome.

Either all that the handler wrote through `context.connection` commits together with the outcome, or
nothing does. The outcome is fenced: if the entry was taken over meanwhile, the handler's work is
rolled back.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Protocol

import msgspec
from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from queue_core.errors import StickybusError
from queue_core.model.entry import SubscriberProgress, from_row
from queue_core.model.outcome import Finished, Lost, Recorded, given_up
from queue_core.model.states import State
from queue_core.running.run import Run
from queue_core.running.subscriber import (
    Backlogs,
    EntryContext,
    Subscriber,
    context_of,
    with_connection,
)
from queue_core.runtime.log import get_logger
from queue_core.storage.endings import end_awaited, endings_of
from queue_core.storage.moves import batch_of
from queue_core.storage.progress import write_progress
from queue_core.storage.store import Store
from sql.transient import HANDLER

log = get_logger(__name__)


class Owner(Protocol):
    """Knows the node that runs entries."""

    @property
    def name(self) -> str:
        """The node's name, or the last one's."""
        ...


class ExactlyOnce:
    """Calls such handlers for one bus or service, on behalf of the node that is the `owner`."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner

    def call(
        self,
        run: Run,
        subscriber: Subscriber,
        backlogs: Backlogs,
    ) -> Recorded | Lost | None:
        """Call `subscriber` and record its progress; also the end of the entry, if it is the last.

        After a deadlock or its like it is called again, unless another node may run the entry by
        now. None: other subscribers are left. Lost: the entry was taken over, or nobody can tell
        whether the COMMIT took effect; what the table says then is for a sweep to read. Raises the
        error of the handler or the database; nothing was written then.
        """
        entry, last = run.entry, run.ends_with_next
        progress: SubscriberProgress = {**run.progress, subscriber.name: True}
        reason = given_up(progress)
        finished = Finished(
            entry=entry,
            state=State.PROCESSED if reason is None else State.FAILED,
            started_date=run.started_date,
            finished_date=self._store.clock.now(),
            error_count=entry.error_count,
            progress=progress if len(progress) > 1 or not last else {},
            last_error=reason,
        )
        attempts, keep = count(), run.keep
        context = context_of(entry, run.started_date, backlogs)

        def attempt() -> bool:
            if next(attempts) > 0 and not run.pool.may_call(run):
                return False
            run.keep = keep  # not what an attempt has answered that was rolled back
            return self._attempt(run, context, subscriber, finished, last=last)

        try:
            recorded = self._store.database.persist(attempt, HANDLER)
        except BaseException:
            run.keep = keep  # the error may be one that means success
            raise
        if not recorded:
            return Lost(entry=entry)
        if not last:
            return None
        return Recorded(
            entry=entry,
            state=finished.state,
            started_date=run.started_date,
            error_count=finished.error_count,
            last_error=finished.last_error,
        )

    def _attempt(
        self,
        run: Run,
        context: EntryContext,
        subscriber: Subscriber,
        finished: Finished,
        *,
        last: bool,
    ) -> bool:
        with self._store.database.lazy() as connection:
            transaction = connection.begin()
            try:
                self._store.database.dialect.mark(connection)
                returned = subscriber.handler(run.event, with_connection(context, connection))
                if returned is not None:
                    run.heed(returned)
                if run.keep is not None and finished.state is State.PROCESSED:
                    finished = msgspec.structs.replace(finished, keep=run.keep)
                self._check_whole(connection, transaction, subscriber)
                recorded = self._record(connection, finished, last=last)
            except BaseException:
                # A broken connection can't roll back; its server has done so.
                with suppress(DBAPIError):
                    transaction.rollback()
                raise
            # The row is locked: if the run is cut from here on, that outcome is written later, and
            # keeps what is recorded.
            if not recorded or run.cut:
                transaction.rollback()
                return False
            try:
                transaction.commit()
            except BaseException as error:
                # SQLite keeps the transaction open, and the file locked: the next user of this
                # connection would commit it.
                connection.invalidate()
                if not isinstance(error, DBAPIError):
                    raise
                committed = self._has_committed(subscriber, finished, last=last)
                if committed is False:
                    raise
                return committed is True
            return True

    def _check_whole(
        self, connection: Connection, transaction: RootTransaction, subscriber: Subscriber
    ) -> None:
        """Raises RuntimeError if the transaction is not the one that the handler was given."""
        ended = RuntimeError(
            f"{subscriber.name} ended its transaction, to which the entry's outcome belongs: by "
            "COMMIT or ROLLBACK, by a statement that commits by itself (DDL, on MariaDB and "
            "MySQL), or by going on after an error that undid it (a deadlock; on PostgreSQL any "
            "error of the database). No outcome was recorded; let such errors pass, and leave the "
            "transaction alone. On PostgreSQL a statement that may fail can have a begin_nested()"
        )
        if not transaction.is_active:
            raise ended
        try:
            self._store.database.dialect.unmark(connection)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            raise ended from error

    def _record(self, connection: Connection, finished: Finished, *, last: bool) -> bool:
        """Write the outcome; False if the entry was taken over."""
        entry = finished.entry
        if last:
            batch, owner = batch_of(self._store, [finished]), self._owner.name
            if not self._store.statements.finish(connection, owner=owner, batch=batch):
                return end_awaited(self._store, connection, owner, finished)
            self._store.links.ended(connection, endings_of([finished]))
            return True
        statements, owner, progress = self._store.statements, self._owner.name, finished.progress
        return write_progress(statements, connection, owner, entry, progress) is not None

    def _has_committed(
        self, subscriber: Subscriber, finished: Finished, *, last: bool
    ) -> bool | None:
        """Whether a transaction whose COMMIT gave no answer took effect.

        The entry's row is locked meanwhile. None if the database does not tell.
        """
        entry = finished.entry

        def work(connection: Connection) -> bool:
            row = self._store.statements.held(
                connection,
                owner=self._owner.name,
                record_id=entry.record_id,
                claim_count=entry.claim_count,
            )
            if not last:
                return row is not None and from_row(row).progress.get(subscriber.name) is True
            if row is not None:
                return False
            ended = self._store.search(
                connection,
                past=True,
                where=lambda table: [
                    table.c.record_id == entry.record_id,
                    table.c.processing_state == finished.state.value,
                    table.c.claim_count == entry.claim_count,
                ],
            )
            return bool(ended)

        try:
            return self._store.database.write(work)
        except (SQLAlchemyError, StickybusError) as error:
            log.warning(
                "commit_unknown",
                record_id=entry.record_id,
                user_token=entry.user_token,
                subscriber=subscriber.name,
                error_type=type(error).__name__,
            )
            return None
