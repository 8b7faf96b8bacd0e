"""MapReduce on a work queue: any number of mappers and reducers, of which any may die.

A mapper turns one input into pairs, and inserts those of each shard as one task. A reducer merges
the tasks of a shard into one, and reduces that when nothing is left to map. Each step deletes its
input and inserts its output in one modification. So a pair is counted once, though any process may
be killed at any time.

A task that fails for good lies in the error queue of its queue. Its part is missing then, so no
shard that it may belong to is reduced, and no results are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from zlib import crc32

from stickybus import Insert, Job, Task, WorkQueue

MERGED = 200
"""Tasks of a shard that are merged at a time."""
CLEARED = 500
"""Tasks that are deleted at a time."""
TICK_SECONDS = 0.2
"""When a task that nothing can be merged with comes back: all of a shard at the same instants."""
WAIT_SECONDS = 2 * TICK_SECONDS
"""For how long the first task of a shard waits for others to come back."""

Pairs = dict[str, list[Any]]
Written = tuple[Any, ...]


class FailedTaskError(Exception):
    """A task has failed for good: there is no result without it."""


@dataclass(frozen=True)
class MapReduce:
    """A computation.

    Attributes:
        name: Its queues begin with it.
        map: Makes pairs of a key and a value out of an input.
        reduce: Makes the result of a key out of its values.
        combine: Makes fewer values out of the values of a key, early and as often as it likes; so
            it must take its own values, too. Default: they stay.
        shards: Into how many parts the keys are split.
    """

    name: str
    map: Callable[[Any], Iterable[tuple[str, Any]]]
    reduce: Callable[[str, list[Any]], Any]
    combine: Callable[[str, list[Any]], list[Any]] | None = None
    shards: int = 4

    @property
    def inputs(self) -> str:
        """The queue of the tasks to map."""
        return f"{self.name}/inputs"

    @property
    def shard_queues(self) -> list[str]:
        """The queues of the mapped pairs."""
        return [f"{self.name}/shards/{shard}" for shard in range(self.shards)]

    @property
    def outputs(self) -> str:
        """The queue of results, one task for each shard that has any."""
        return f"{self.name}/outputs"

    def clear(self, work: WorkQueue) -> None:
        """Delete all tasks, such as an earlier run has left. No worker may be running."""
        queues = [self.inputs, *self.shard_queues]
        for queue in (*queues, *map(_errors_of, queues), self.outputs):
            while tasks := work.tasks(queue, limit=CLEARED, with_values=False):
                tasks.sort(key=_holder)
                for holder, held in groupby(tasks, _holder):
                    work.modify(*(task.delete() for task in held), claimant=holder or None)

    def is_done(self, work: WorkQueue) -> bool:
        """Whether all is reduced. A task is in one of these queues until it is in the outputs.

        Raises FailedTaskError if one has failed for good.
        """
        queues = [self.inputs, *self.shard_queues]
        errors = [_errors_of(queue) for queue in queues]
        there = work.queues(*queues, *errors)
        for queue in errors:
            if queue in there:
                for task in work.tasks(queue, limit=1, with_values=False):
                    raise FailedTaskError(_told(task))
        return not there

    def results(self, work: WorkQueue) -> Iterator[tuple[str, Any]]:
        """Each key with its result, if all is reduced.

        Raises FailedTaskError if a task has failed for good, and RuntimeError if some are left.
        """
        if not self.is_done(work):
            raise RuntimeError(f"{self.name}: not all is reduced yet, so there is no result.")
        for task in work.tasks(self.outputs):
            yield from task.value.items()

    # -- handlers ---------------------------------------------------------------------------------

    def map_task(self, job: Job) -> Iterator[Insert]:
        """Handle a task of the inputs."""
        shards = defaultdict[int, Pairs](lambda: defaultdict(list))
        for key, value in self.map(job.task.value):
            shards[crc32(key.encode()) % self.shards][key].append(value)
        for shard, pairs in shards.items():
            yield Insert(queue=self.shard_queues[shard], value=self._combined(pairs))

    def reducer(self, work: WorkQueue) -> Callable[[Job], Written]:
        """Make the handler of the tasks of shards."""

        def reduce_tasks(job: Job) -> Written:
            others = job.claim_more(limit=MERGED - 1)
            if not others and self._is_first(work, job.task):
                others = job.claim_more(limit=MERGED - 1, timeout_seconds=WAIT_SECONDS)
            tasks = [job.task, *others]
            gone = [task.delete() for task in tasks]
            if self._is_all(work, tasks):
                pairs = sorted(self._merged(tasks).items())
                results = {key: self.reduce(key, values) for key, values in pairs}
                return (*gone, Insert(queue=self.outputs, value=results))
            if len(tasks) > 1:
                merged = self._combined(self._merged(tasks))
                return (*gone, Insert(queue=job.task.queue, value=merged))
            return (job.task.change(at=_next_tick(job.task.modified)),)

        return reduce_tasks

    def _is_first(self, work: WorkQueue, task: Task) -> bool:
        """Whether it is the first of its shard by ids.

        Two reducers that hold a task each would else put off both, and so on forever.
        """
        return all(task.id <= one.id for one in work.tasks(task.queue, with_values=False))

    def _is_all(self, work: WorkQueue, tasks: list[Task]) -> bool:
        """Whether these are all tasks of the shard, none has failed, and no more will come."""
        if work.queues(self.inputs, _errors_of(self.inputs)):
            return False
        # Asked only now: the tasks of the last mappers are there.
        shard = tasks[0].queue
        return work.queues(shard, _errors_of(shard)) == {shard: len(tasks)}

    def _merged(self, tasks: Iterable[Task]) -> Pairs:
        pairs: Pairs = defaultdict(list)
        for task in tasks:
            for key, values in task.value.items():
                pairs[key] += values
        return pairs

    def _combined(self, pairs: Pairs) -> Pairs:
        if self.combine is None:
            return dict(pairs)
        return {key: self.combine(key, values) for key, values in pairs.items()}


def _errors_of(queue: str) -> str:
    """Where a worker moves the tasks of a queue that have failed for good."""
    return f"{queue}/err"


def _holder(task: Task) -> str:
    return task.claimant


def _told(task: Task) -> str:
    return (
        f"task {task.id!r} of {task.failed_in!r} has failed {task.attempt} times, and there is no "
        "result without it. Mend what made it fail, and run the program again: it begins anew. The "
        f"last error: {task.err}"
    )


def _next_tick(now: datetime) -> datetime:
    ticks = int(now.timestamp() / TICK_SECONDS) + 1
    return datetime.fromtimestamp(ticks * TICK_SECONDS, UTC)
