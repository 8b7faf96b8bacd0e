"""A task: work that one consumer at a time holds, until somebody deletes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Unpack

from queue_core.errors import InvalidRequestError
from work_queue.modification import Change, Changes, Delete, Depend, Renew, Replay
from work_queue.refs import TaskPlace, TaskRef

NOBODY = ""
"""The claimant of a task that nobody holds."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it was read, claimed or written.

    A task has no state of its own: `at` and the clock tell whether it can be claimed.

    Attributes:
        id: Its id, unique over all queues.
        version: Raised by each claim and by each modification; 0 after the insert.
        queue: The queue that it is in.
        at: When it can be claimed: its arrival, or the end of the lease. In UTC.
        claimant: Who holds it, or held it last; empty if it was released.
        claims: How often it was claimed.
        value: A JSON value, or bytes. `UNREAD` if it was read without values, or if somebody has
            spoilt it by SQL of their own: a change leaves it as it is then, unless it gives one.
        created: When it was inserted, by the database's clock.
        modified: When it was inserted, claimed or changed last.
        attempt: How often it has failed, as its workers count.
        err: The text of the last failure, as its workers write it.
        failed_in: The queue in which it failed, if a failure has moved it away from there. Empty if
            it has no `err` any more.
    """

    id: str
    version: int
    queue: str
    at: datetime
    claimant: str
    claims: int
    value: Any
    created: datetime
    modified: datetime
    attempt: int
    err: str
    failed_in: str = ""

    @property
    def ref(self) -> TaskRef:
        """The name of this version, in its queue."""
        return TaskRef(self.id, self.version, self.queue)

    @property
    def place(self) -> TaskPlace:
        """Where it is among its queue's tasks, for a read of those `after` it."""
        return TaskPlace(self.at, self.id)

    @property
    def lease(self) -> timedelta:
        """The lease that was granted, if the task was just claimed or renewed."""
        return self.at - self.modified

    def change(self, **changes: Unpack[Changes]) -> Change:
        """Make a change of this version for `WorkQueue.modify`.

        Options that are not given stay as they are.

        Args:
            changes: The options of `Change`. Without `delay` and `at` the task is ready at once,
                and held by nobody.

        Returns:
            The change.
        """
        kept: Mapping[str, Any] = {"value": self.value, "attempt": self.attempt, "err": self.err}
        return Change(self.ref, **{**kept, **changes})

    def delete(self) -> Delete:
        """Make a delete of this version for `WorkQueue.modify`: the task is done.

        Returns:
            The delete.
        """
        return Delete(self.ref)

    def depend(self) -> Depend:
        """Make a dependency for `WorkQueue.modify`: this version must still be the newest.

        Returns:
            The dependency.
        """
        return Depend(self.ref)

    def renew(self, seconds: float) -> Renew:
        """Make a lease change for `WorkQueue.modify`: only the arrival moves.

        Args:
            seconds: The new lease from now; 0 or less: the task is released.

        Returns:
            The lease change.
        """
        return Renew(self.ref, seconds)

    def replay(self, queue: str | None = None) -> Replay:
        """Make a new beginning of this version for `WorkQueue.modify`: it runs as if just inserted.

        Args:
            queue: Where. Default: where it has failed.

        Returns:
            The new beginning.

        Raises:
            InvalidRequestError: No queue is given, and no failure has moved the task.
        """
        where = queue or self.failed_in
        if not where:
            raise InvalidRequestError(
                f"task {self.id!r} in {self.queue!r}: no failure has moved it there, so nobody "
                "knows where it came from. Nothing was written. Give a queue.",
                key="queue",
            )
        return Replay(self.ref, where)

    def release(self) -> Renew:
        """Make a lease change that gives the task back, ready at once.

        Returns:
            The lease change.
        """
        return self.renew(0)
