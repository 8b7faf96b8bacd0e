"""`stickybus tasks clear`: all tasks of a queue, deleted without a look at their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from stickybus.cli.bulk import Yes
from stickybus.cli.exit_codes import INTERRUPTED
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import plural, remark, say, write_json
from stickybus.cli.progress import bar, stoppable
from stickybus.cli.target import Json
from stickybus.cli.work import Force, Opening, Queue, opening
from work_queue.refs import TaskPlace
from work_queue.task import Task

if TYPE_CHECKING:
    from work_queue.work_queue import WorkQueue

BATCH = 500
"""Tasks that are read and deleted at a time."""


@grouped(opened=opening)
def clear(
    *, queue: Queue, force: Force = False, yes: Yes = False, as_json: Json = False, opened: Opening
) -> None:
    """Delete the tasks of a queue that can be claimed; with --force, all of them.

    It deletes in batches, and reads no value. Tasks inserted meanwhile stay. Ctrl-C ends it
    after a batch.

    Examples:
      stickybus tasks clear -q mail

      stickybus tasks clear -q mail --force --yes
    """
    from work_queue.face.history import CLOCKS_DIFFER

    with opened() as work:
        stats = work.queue_stats(queue)
        tasks, available = (stats[0].tasks, stats[0].available) if stats else (0, 0)
        matched = tasks if force else available
        deleted, stopped = 0, False
        if yes:
            # Without an end, a queue that is fed would be cleared for ever.
            end, place = work.time() + CLOCKS_DIFFER, None
            with stoppable() as stop, bar("deleted so far", quiet=as_json) as progress:
                while not stop.is_set() and (batch := next_batch(work, queue, place, force=force)):
                    # Others are to come, or held by this claimant.
                    ready = batch if force else _ready(batch, work.time())
                    old = [task for task in ready if task.created <= end]
                    deleted += _delete(work, old, force=force)
                    place = batch[-1].place
                    progress(deleted, max(matched, deleted))
                stopped = stop.is_set()
    if as_json:
        write_json({"done": yes, "matched": matched, "deleted": deleted, "stopped": stopped})
    elif yes:
        say(f"{plural(deleted, 'task')} deleted")
    else:
        say(
            f"{plural(matched, 'task')} would be deleted, {tasks - matched:,} would stay. Nothing "
            "was changed: this was a dry run. To do it, add --yes"
        )
    if stopped:
        remark("Stopped after a batch: run the command again to go on.")
        raise typer.Exit(INTERRUPTED)


def next_batch(work: WorkQueue, queue: str, after: TaskPlace | None, *, force: bool) -> list[Task]:
    """Some that may be deleted, in the order of their arrival."""
    holder = None if force else work.claimant
    return work.tasks(queue, claimant=holder, limit=BATCH, with_values=False, after=after)


def _ready(batch: Sequence[Task], now: datetime) -> list[Task]:
    return [task for task in batch if task.at <= now]


def _delete(work: WorkQueue, batch: Sequence[Task], *, force: bool) -> int:
    """Delete those that nobody has changed meanwhile; returns how many."""
    from work_queue.face.possible import modify_possible

    by_holder = defaultdict[str, list[Task]](list)
    for task in batch:
        by_holder[task.claimant if force else ""].append(task)
    return sum(
        modify_possible(work, [task.delete() for task in tasks], holder or None)
        for holder, tasks in by_holder.items()
    )
