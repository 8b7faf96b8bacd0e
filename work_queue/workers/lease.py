"""The lease of a handler's run: tasks and doc sets that it holds, at their newest versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import DatabaseUnreachableError
from queue_core.runtime.callers import CallersConnection
from work_queue.document import DocClaim, DocSet
from work_queue.faults import DependencyError
from work_queue.modification import Action, Renew
from work_queue.refs import DocRef, SetRef, TaskRef
from work_queue.rights import PermissionDeniedError
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.newest import counted_anew, newest

RENEWAL_PART = 2 / 3
"""Of a lease: when it is renewed."""
LEAST_MARGIN_SECONDS = 1.0
"""The least time from the renewal of a lease to its end: a shorter one counts as longer here."""
ANSWER_PART = 1 / 4
"""Of that time, or of the whole lease when the work is done: the least wait for an answer."""
RENEWAL_SECONDS = 10.0
"""The longest wait for a renewal that is under way when the work is done."""
UNREACHED = DatabaseUnreachableError, PoolTimeoutError
"""What a work queue raises that could not reach its database, or got no answer from it."""
UNWRITTEN = *UNREACHED, OperationalError, InterfaceError
"""The same, and what a database says that is busy: of a lock, a deadlock, or its own trouble."""

T = TypeVar("T")


class LeaseClosedError(Exception):
    """The run was given up before its handler returned: what that returns is not written."""


class LeaseLostError(Exception):
    """What was asked for was refused: the task, or what is held with it, is lost."""


class NotWrittenError(Exception):
    """What was asked for could not be written. Its cause is the database's error."""


class NotBegunError(Exception):
    """There was no connection for the handler. Its cause is the database's error."""


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
        self.closed = False
        self._renewing = threading.Condition()
        """Guards what renewals write here. Several may be under way: one may hang."""
        self._under_way = 0
        """Renewals that have got no answer yet, not even an error."""
        self._in_doubt = 0
        """Renewals of the version that it holds that may have taken effect."""

    def claim_docs(self, claims: Iterable[DocClaim]) -> None:
        """Claim doc sets for as long as the task is held. Nobody begins a renewal meanwhile.

        Raises what `finish` raises but LeaseClosedError.
        """
        with self._telling():
            sets = self._at_newest(
                lambda: self._work.claim_docs(
                    *claims, until=self.task.ref, claimant=self.task.claimant
                )
            )
        with self._renewing:
            self.holds(sets)

    def holds(self, sets: Sequence[DocSet]) -> None:
        """The doc sets were claimed for the task."""
        self.sets = sets
        self._set_keys = {(doc.namespace, doc.id): doc.key for docs in sets for doc in docs.docs}

    def hold(self, tasks: Iterable[Task]) -> None:
        """The handler has claimed these for the lease of the task."""
        with self._renewing:
            self._others.update({task.id: task for task in tasks})

    @property
    def seconds_to_renewal(self) -> float:
        """How long to wait for the next renewal."""
        return max(0.0, self._renewal - time.monotonic())

    @property
    def margin_seconds(self) -> float:
        """The time from a renewal to the end of the lease."""
        return max(LEAST_MARGIN_SECONDS, self.seconds * (1 - RENEWAL_PART))

    @property
    def seconds_left(self) -> float:
        """How long it counts as held without another renewal. Nobody else can claim the task then.

        A lease with the least margin may end before: its renewals would have no time.
        """
        return max(0.0, self._renewal + self.margin_seconds - time.monotonic())

    @property
    def seconds_to_answer(self) -> float:
        """How long to wait for the answer of a renewal before another one is tried."""
        return max(self.seconds_left / 2, self.margin_seconds * ANSWER_PART)

    @property
    def _renewal(self) -> float:
        return self.granted + self.seconds * RENEWAL_PART

    def renew(self) -> None:
        """Renew tasks and doc sets together, unless the lease is closed.

        It may be called again while it hangs.

        Raises DependencyError if one of them is no longer held, and what `WorkQueue.modify` raises.
        """
        if self.closed:
            return
        try:
            self._renew()
        except DependencyError:
            if not self._has_adopted():
                raise
            self._renew()

    def _renew(self) -> None:
        with self._asking():
            granted = time.monotonic()
            with self._renewing:
                task, others, sets = self.task, [*self._others.values()], self.sets
            try:
                modified = self._work.modify(
                    *(Renew(one.ref, self.seconds, with_value=False) for one in (task, *others)),
                    *(docs.renew(self.seconds) for docs in sets),
                    claimant=task.claimant,
                )
            except DependencyError:
                with self._renewing:
                    if self.task is not task:  # another renewal was faster
                        return
                    self._in_doubt = max(0, self._in_doubt - 1)
                raise
            with self._renewing:
                if self.task is task:
                    self._in_doubt = 0
                    self.task, *others = (
                        replace(new, value=old.value)
                        for old, new in zip((task, *others), modified.changed, strict=True)
                    )
                    self._others.update({other.id: other for other in others})
                    if self.sets is sets:  # else they came meanwhile, and end before the task
                        self.sets = modified.changed_sets
                        self.granted = granted

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A block in which a renewal is under way, and in doubt until it is answered."""
        with self._renewing:
            self._under_way += 1
            self._in_doubt += 1
        try:
            yield
        finally:
            with self._renewing:
                self._under_way -= 1
                self._renewing.notify_all()

    def _has_adopted(self) -> bool:
        """Whether it holds newer versions now: those of a renewal whose answer was lost.

        A renewal writes all or nothing, so the task tells for the doc sets, too. It does not tell
        for other tasks, which may have come later. A claim counts, and a renewal does not.
        """
        if not self._in_doubt:
            return False
        task = self.task
        held = {task.id: task, **self._others}
        try:
            found = [
                one
                for queue in {one.queue for one in held.values()}
                for one in self._work.tasks(
                    queue,
                    ids=[one.id for one in held.values() if one.queue == queue],
                    with_values=False,
                )
            ]
        except PermissionDeniedError:  # it may claim, but not read
            found = []
        renewed = {
            one.id: replace(held[one.id], version=one.version)
            for one in found
            if one.version == held[one.id].version + 1
            and (one.claimant, one.claims) == (task.claimant, held[one.id].claims)
        }
        with self._renewing:
            if self.task is not task:  # another renewal was faster
                return True
            self._in_doubt = 0
            if task.id not in renewed:
                return False
            self.task = renewed.pop(task.id)
            self._others.update(renewed)
            self.sets = [replace(docs, version=docs.version + 1) for docs in self.sets]
        return True

    def close(self) -> bool:
        """End the renewals. Only the first who does may write."""
        with self._closing:
            first, self.closed = not self.closed, True
        return first

    def finish(self, actions: Iterable[Action], connection: CallersConnection | None) -> None:
        """Write what the handler has returned.

        Raises LeaseClosedError if the run was given up, LeaseLostError, NotWrittenError, and what
        `write` raises else.
        """
        if not self.close():
            raise LeaseClosedError("the run was given up. Its handler's answer is not written.")
        with self._telling():
            self.write(counted_anew(actions, self.task, self._others), connection)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """A block whose refusals and failures are told as those of a lease."""
        try:
            yield
        except DependencyError as error:
            if self.is_lost(error):
                raise LeaseLostError from error
            raise
        except UNWRITTEN as error:
            raise NotWrittenError from error

    def write(self, actions: Iterable[Action], connection: CallersConnection | None = None) -> None:
        """Modify at the newest versions. The lease is closed.

        Raises what `WorkQueue.modify` raises.
        """
        given = tuple(actions)
        self._at_newest(lambda: self._modify(given, connection))

    def _at_newest(self, call: Callable[[], T]) -> T:
        """Call it, and once more if it is refused at versions that a renewal has raised."""
        task = self.task
        try:
            return call()
        except DependencyError as error:
            # A renewal that was under way may have been faster, or one has got no answer.
            if not self.is_lost(error):
                raise
            self._await_renewals(task)
            if self.task is task and not self._has_adopted():
                raise
            return call()

    def _await_renewals(self, task: Task) -> None:
        """Wait until none is under way from this version, or not for much longer."""
        seconds = min(RENEWAL_SECONDS, self.seconds * ANSWER_PART)
        with self._renewing:
            self._renewing.wait_for(lambda: not self._under_way or self.task is not task, seconds)

    def _modify(self, actions: tuple[Action, ...], connection: CallersConnection | None) -> None:
        with self._renewing:
            asked = newest(actions, self.task, self._others, self.sets, self._set_keys)
        self._work.modify(*asked, claimant=self.task.claimant, connection=connection)

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
