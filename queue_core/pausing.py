"""Pausing a bus or notification queue, or one of its handlers or order keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
from queue_core.model.lanes import paused_lane
from queue_core.model.names import name_fault
from queue_core.model.pause import Pause
from queue_core.model.refusal import refused
from queue_core.running.subscriber import LONGEST_NAME
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.clock import in_utc
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown
from queue_core.runtime.user import LONGEST_BY, somebody
from queue_core.storage.pauses import StoredPauses
from sql.tables import ORDER_KEY_LENGTH

LONGEST_REASON = 10_000
"""Characters of a reason at most."""


class PauseOptions(TypedDict, total=False):
    """The options of a pause, besides its connection."""

    handler: str | None
    order_key: str | None
    reason: str | None
    until: datetime | timedelta | None
    by: str | None


class Pausing:
    """Pauses and resumes one queue."""

    def __init__(self, engine: QueueEngine, queue_name: str) -> None:
        self._pausing_engine = engine
        self._paused_queue = queue_name
        self._stored_pauses = StoredPauses(engine.store)

    def pause(
        self,
        *,
        handler: str | None = None,
        order_key: str | None = None,
        reason: str | None = None,
        until: datetime | timedelta | None = None,
        by: str | None = None,
        connection: CallersConnection | None = None,
    ) -> Pause:
        """Let no node start anything of it, until `resume`.

        All nodes obey within a second of the commit, this process at once. Running handlers finish.
        Posting goes on; due entries wait, and other queues run. The pause is stored, so that it
        holds over restarts. Another pause of the same replaces it.

        Args:
            handler: Only the subscriber of this name, on all nodes. An entry's other subscribers
                run, and the entry then waits for this one. Default: all.
            order_key: Only the entries of this order key: the first one waits, and all behind it.
                Not together with `handler`. Default: all.
            reason: The reason, for those who look, in at most 10,000 characters. Default: none.
            until: An aware date, or a timedelta from now, at which it ends by itself. Default:
                never.
            by: Its author, in at most 255 characters. Default: the user of this process and its
                machine.
            connection: As for `PersistentBus.post`: the pause is part of its transaction.

        Returns:
            The pause as it is stored.

        Raises:
            InvalidPostError: An argument can't be stored; NaiveDateTimeError for a date without a
                time zone. Nothing was written.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> bus.pause(reason="the mail server is down", until=timedelta(hours=1))
        """
        store = self._pausing_engine.store
        now = store.now(connection)
        name, key = self._part(handler, order_key)
        pause = Pause(
            table=store.config.table,
            queue_name=self._paused_queue,
            handler=name,
            order_key=key,
            paused_by=self._checked(by, "by", LONGEST_BY) or somebody(),
            reason=self._checked(reason, "reason", LONGEST_REASON),
            since=now,
            until=self._end_date(until, now),
        )
        self._stored_pauses.put(pause, connection)
        self._pauses_changed(connection)
        return pause

    def resume(
        self,
        *,
        handler: str | None = None,
        order_key: str | None = None,
        connection: CallersConnection | None = None,
    ) -> bool:
        """End a pause: its entries run in their order. All nodes learn of it within a second.

        Args:
            handler: As for `pause`. A pause of the whole queue is another one, and the other way
                round: each is ended by itself.
            order_key: As for `pause`.
            connection: As for `PersistentBus.post`: the end is part of its transaction.

        Returns:
            False if it was not paused.

        Raises:
            InvalidPostError: `handler` can't be a name, or `order_key` a key.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        lane = paused_lane(self._paused_queue, *self._part(handler, order_key))
        resumed = self._stored_pauses.remove(self._paused_queue, lane, connection)
        self._pauses_changed(connection)
        return resumed

    def pauses(self, *, connection: CallersConnection | None = None) -> list[Pause]:
        """List the present pauses.

        Args:
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The pauses of the queue, its handlers and its order keys that have not ended: its own
            first, then those of handlers by name, then those of keys.

        Raises:
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._stored_pauses.in_force(self._paused_queue, connection)

    async def pause_async(
        self, *, connection: AsyncCallersConnection | None = None, **options: Unpack[PauseOptions]
    ) -> Pause:
        """Awaitable twin of `pause`."""
        return await awaited(lambda inner: self.pause(connection=inner, **options), connection)

    async def resume_async(
        self,
        *,
        handler: str | None = None,
        order_key: str | None = None,
        connection: AsyncCallersConnection | None = None,
    ) -> bool:
        """Awaitable twin of `resume`."""
        return await awaited(
            lambda inner: self.resume(handler=handler, order_key=order_key, connection=inner),
            connection,
        )

    async def pauses_async(
        self, *, connection: AsyncCallersConnection | None = None
    ) -> list[Pause]:
        """Awaitable twin of `pauses`."""
        return await awaited(lambda inner: self.pauses(connection=inner), connection)

    def _pauses_changed(self, connection: CallersConnection | None) -> None:
        # Changes of a caller's transaction are found by the next look, if it commits.
        lifecycle = self._pausing_engine.lifecycle
        if connection is None and lifecycle.node is not None:
            lifecycle.paused.look()

    def _part(self, handler: str | None, order_key: str | None) -> tuple[str | None, str | None]:
        """The handler or order key that is paused, as given. Raises InvalidPostError."""
        if handler is not None and order_key is not None:
            raise InvalidPostError(
                f"{self._paused_queue}: a pause is of handler={shown(handler)} or of "
                f"order_key={shown(order_key)}, not of both. Nothing was written.",
                queue_name=self._paused_queue,
                key="order_key",
            )
        return (
            self._checked(handler, "handler", LONGEST_NAME),
            self._checked(order_key, "order_key", ORDER_KEY_LENGTH),
        )

    def _checked(self, text: str | None, key: str, longest: int) -> str | None:
        fault = None if text is None else name_fault(text, longest)
        if fault:
            raise refused(self._paused_queue, key, text, fault)
        return exact_text(text)

    def _end_date(self, until: datetime | timedelta | None, now: datetime) -> datetime | None:
        if not isinstance(until, timedelta):
            return None if until is None else in_utc(until, key="until")
        try:
            return now + until
        except OverflowError as error:
            raise InvalidPostError(
                f"{self._paused_queue}: until={until} gives no date that can be stored. Nothing "
                "was written.",
                queue_name=self._paused_queue,
                key="until",
            ) from error
