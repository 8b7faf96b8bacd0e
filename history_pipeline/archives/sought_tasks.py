"""A search for finished tasks in an archive: the files that hold them, the rows that match."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyarrow import compute

from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.search import Search, unless_none
from history_pipeline.period import EVER, Period
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.kind import TASKS
from queue_core.model.names import name_fault
from queue_core.runtime.arguments import not_allowed
from sql.tables import TASK_ID_BYTES, TASK_QUEUE_LENGTH

_ORDER = ("finished_date", "record_id")


class SoughtTasks:
    """What is looked for. Raises ConfigurationError for a queue or ids that no task can have."""

    def __init__(
        self, queue: str | None = None, ids: Iterable[str] | None = None, period: Period = EVER
    ) -> None:
        self._period = period
        conditions = [
            *unless_none("queue", compute.equal, None if queue is None else _queue(queue)),
            *unless_none("task_id", compute.is_in, None if ids is None else _ids(ids)),
            *unless_none("finished_date", compute.greater_equal, period.since),
            *unless_none("finished_date", compute.less, period.until),
        ]
        self.search = Search(conditions, _ORDER, schema_of(TASKS.columns))

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the day of a file allows that it holds such tasks."""
        return self._period.meets(file.event_date)


def _queue(queue: str) -> str:
    if fault := name_fault(queue, TASK_QUEUE_LENGTH):
        raise not_allowed("queue", queue, fault)
    return queue


def _ids(ids: Iterable[str]) -> pa.Array:
    known = None if isinstance(ids, str) or not isinstance(ids, Iterable) else list(ids)
    if known is None or any(name_fault(one, TASK_ID_BYTES) for one in known):
        raise not_allowed("ids", ids, "a collection of ids that tasks can have")
    return pa.array(known, pa.string())
