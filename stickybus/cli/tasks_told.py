"""The work queue of a database in two lines, for commands that show entries."""

from __future__ import annotations

from typing import NamedTuple

from queue_core.errors import SchemaError
from stickybus.cli.output import plural
from stickybus.cli.target import url_of


class Told(NamedTuple):
    """What there is, each with the command that shows it; None if there is nothing."""

    tasks: str | None = None
    schedules: str | None = None


def tasks_told(url: str | None) -> Told:
    """How many tasks and schedules a work queue has, by counts that scan no tasks."""
    from sqlalchemy.exc import DBAPIError

    from work_queue.work_queue import WorkQueue

    try:
        with WorkQueue(url_of(url)) as work:
            queues, schedules = work.queues(), work.recurring()
    except (SchemaError, DBAPIError):  # an older schema, or a user who may read entries alone
        return Told()
    tasks = f"{plural(sum(queues.values()), 'task')} in {plural(len(queues), 'queue')}"
    return Told(
        f"{tasks} of the work queue. See: stickybus tasks stats" if queues else None,
        f"{plural(len(schedules), 'recurring schedule')} of the work queue. See: stickybus tasks "
        "recurring"
        if schedules
        else None,
    )
