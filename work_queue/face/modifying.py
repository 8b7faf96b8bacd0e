"""Modifications."""

from __future__ import annotations

from typing import Unpack

from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from work_queue import checks
from work_queue.face.part import Part
from work_queue.modification import Action, Insert, InsertOptions
from work_queue.modified import Modified
from work_queue.task import Task


class Modifying(Part):
    """See `WorkQueue`."""

    def insert(
        self,
        queue: str,
        value: object = None,
        *,
        connection: CallersConnection | None = None,
        **options: Unpack[InsertOptions],
    ) -> Task:
        """Insert one task.

        Args:
            queue: Its queue.
            value: A JSON value, or bytes.
            connection: As for `modify`.
            options: The options of `Insert`.

        Returns:
            The task; with `skip_existing` the one that has the id already, as it is by now.

        Raises:
            DependencyError: A task has the id, and `skip_existing` was not given.
            InvalidRequestError: An argument is not allowed.
            NaiveDateTimeError: A date has no time zone.
            InvalidPostError: A date is outside the years 1 to 9999 in UTC.
            PayloadError: The value can't be stored.
            InvalidConnectionError: The connection can't be used here.
            WriteLockError: SQLite refused the write lock to the caller's transaction.
            DatabaseUnreachableError: The database does not answer.
        """
        new = Insert(queue=queue, value=value, **options)
        while True:
            modified = self.modify(new, connection=connection)
            for task in (*modified.inserted, *modified.existing):
                return task
            # The task that had the id was deleted between the two looks.

    def modify(
        self,
        *actions: Action,
        claimant: str | None = None,
        connection: CallersConnection | None = None,
    ) -> Modified:
        """Insert, change, delete, and check, in one transaction: all of it, or nothing.

        Each task and doc may stand in one of the actions only.

        Args:
            actions: At least one.
            claimant: Who modifies. A task or doc that another claimant holds is at fault. Default:
                the work queue's.
            connection: The caller's connection, whose transaction this belongs to. Default: a
                transaction of its own.

        Returns:
            What was written.

        Raises:
            DependencyError: Something is not as the actions say. It names all that is at fault;
                nothing was written, and the transaction is whole.
            InvalidRequestError: The actions can never be done.
            NaiveDateTimeError: A date has no time zone.
            InvalidPostError: A date is outside the years 1 to 9999 in UTC.
            PayloadError: A value can't be stored.
            InvalidConnectionError: The connection can't be used here.
            WriteLockError: SQLite refused the write lock to the caller's transaction.
            DatabaseUnreachableError: The database does not answer.
        """
        checked = checks.actions(actions)
        modifier = checks.modifier(claimant, self._claimant, checked)
        return self._backend.modify(modifier, checked, connection)

    # -- awaitable twins --------------------------------------------------------------------------

    async def insert_async(
        self,
        queue: str,
        value: object = None,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[InsertOptions],
    ) -> Task:
        """Awaitable twin of `insert`."""
        return await awaited(
            lambda inner: self.insert(queue, value, connection=inner, **options), connection
        )

    async def modify_async(
        self,
        *actions: Action,
        claimant: str | None = None,
        connection: AsyncCallersConnection | None = None,
    ) -> Modified:
        """Awaitable twin of `modify`."""
        return await awaited(
            lambda inner: self.modify(*actions, claimant=claimant, connection=inner), connection
        )
