"""The lease of a handler's run: tasks and doc sets that it holds, at their newest versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import DatabaseUnreachableError
from queue_core.runtime.callers import CallersConnection
from work_queue.document import DocSet
from work_queue.faults import DependencyError
from work_queue.modification import Action
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.rights import PermissionDeniedError
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.newest import newest

RENEWAL_PART = 2 / 3
"""Of a lease: when it is renewed."""
RENEWAL_SECONDS = 10.0
"""The longest wait for a renewal that is under way when the work is done."""
UNREACHED = DatabaseUnreachableError, PoolTimeoutError
"""What a work queue raises that could not reach its database, or got no answer from it."""


class LeaseClosedError(Exception):
    """The run was given up before its handler returned: what that returns is not written."""


class NotWrittenError(Exception):
    """What the handler has returned could not be written: the cause is one of `UNREACHED`."""


class Lease:
    """Held by renewals until somebody closes it: the handler's return, or whoever gives it up.

    Used by several threads.
    """

    def __init__(self, work: WorkQueue, task: Task, claimed: float) -> None:
        self._work = work
        self.task = task
        self.sets: Sequence[DocSet] = ()
        self._others = dict[str, Task]()
        """What the handler has claimed besides the task, by id."""
        self._set_keys = dict[tuple[str, str], str]()
        self.seconds = task.lease.total_seconds()
        self.granted = claimed
        """When it was claimed or renewed last, as time.monotonic() tells."""
        self._closing = threading.Lock()
        self._closed = False
        self._renewing = threading.Lock()
        self._in_doubt = False
        """Whether a renewal failed that may have taken effect."""

    def holds(self, sets: Sequence[DocSet]) -> None:
        """The doc sets were claimed for the task."""
        self.sets = sets
        self._set_keys = {(doc.namespace, doc.id): doc.key for docs in sets for doc in docs.docs}

    def hold(self, tasks: Iterable[Task]) -> None:
        """The handler has claimed these for the lease of the task."""
        self._others.update({task.id: task for task in tasks})

    @property
    def seconds_to_renewal(self) -> float:
        """How long to wait for the next renewal."""
        return max(0.0, self.granted + self.seconds * RENEWAL_PART - time.monotonic())

    @property
    def seconds_left(self) -> float:
        """How long nobody else can claim the task."""
        return max(0.0, self.granted + self.seconds - time.monotonic())

    def renew(self) -> None:
        """Renew tasks and doc sets together, unless the lease is closed.

        Raises DependencyError if one of them is no longer held, and what `WorkQueue.modify` raises.
        """
        with self._renewing:
            if self._closed:
                return
            try:
                self._renew()
            except DependencyError:
                if not self._has_adopted():
                    raise
                self._renew()

    def _renew(self) -> None:
        granted, others = time.monotonic(), [*self._others.values()]
        try:
            modified = self._work.modify(
                *(task.renew(self.seconds) for task in (self.task, *others)),
                *(docs.renew(self.seconds) for docs in self.sets),
                claimant=self.task.claimant,
            )
        except DependencyError:
            raise
        except Exception:
            self._in_doubt = True
            raise
        self._in_doubt = False
        self.task, *others = modified.changed
        self._others.update({task.id: task for task in others})
        self.sets = modified.changed_sets
        self.granted = granted

    def _has_adopted(self) -> bool:
        """Whether it holds newer versions now: those of a renewal whose answer was lost.

        A renewal writes all or nothing, so the task tells for the doc sets, too. It does not tell
        for other tasks, which may have come later. A claim counts, and a renewal does not.
        """
        if not self._in_doubt:
            return False
        held = {self.task.id: self.task, **self._others}
        try:
            found = [
                task
                for queue in {task.queue for task in held.values()}
                for task in self._work.tasks(
                    queue,
                    ids=[task.id for task in held.values() if task.queue == queue],
                    with_values=False,
                )
            ]
        except PermissionDeniedError:  # it may claim, but not read
            found = []
        self._in_doubt = False
        renewed = {
            task.id: replace(held[task.id], version=task.version)
            for task in found
            if task.version == held[task.id].version + 1
            and (task.claimant, task.claims) == (self.task.claimant, held[task.id].claims)
        }
        if self.task.id not in renewed:
            return False
        self.task = renewed.pop(self.task.id)
        self._others.update(renewed)
        self.sets = [replace(docs, version=docs.version + 1) for docs in self.sets]
        return True

    def close(self) -> bool:
        """End the renewals. Only the first who does may write."""
        with self._closing:
            first, self._closed = not self._closed, True
        return first

    def finish(self, actions: Iterable[Action], connection: CallersConnection | None) -> None:
        """Write what the handler has returned.

        Raises LeaseClosedError if the run was given up, NotWrittenError, and what `write` raises
        else.
        """
        if not self.close():
            raise LeaseClosedError("the run was given up. Its handler's answer is not written.")
        try:
            self.write(actions, connection)
        except UNREACHED as error:
            raise NotWrittenError from error

    def write(self, actions: Iterable[Action], connection: CallersConnection | None = None) -> None:
        """Modify at the newest versions. The lease is closed.

        Raises what `WorkQueue.modify` raises.
        """
        given, task = tuple(actions), self.task
        try:
            self._modify(given, connection)
        except DependencyError as error:
            # A renewal that was under way may have been faster, or one has got no answer.
            if not (self.is_lost(error) and self._renewing.acquire(timeout=RENEWAL_SECONDS)):
                raise
            self._renewing.release()
            if self.task is task and not self._has_adopted():
                raise
            self._modify(given, connection)

    def _modify(self, actions: tuple[Action, ...], connection: CallersConnection | None) -> None:
        self._work.modify(
            *newest(actions, self.task, self._others, self.sets, self._set_keys),
            claimant=self.task.claimant,
            connection=connection,
        )

    def is_lost(self, error: DependencyError) -> bool:
        """Whether what was refused is about the task itself, or what was held with it."""
        held = {(docs.namespace, docs.key) for docs in self.sets}
        return any(
            ref.id == self.task.id or ref.id in self._others
            if isinstance(ref, TaskRef)
            else (ref.namespace, self._key_of(ref)) in held
            for ref in (fault.ref for fault in error.faults)
        )

    def _key_of(self, ref: DocRef | SetRef) -> str:
        if isinstance(ref, SetRef):
            return ref.key
        return self._set_keys.get((ref.namespace, ref.id), "")
