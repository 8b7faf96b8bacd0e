"""One change of all entries that match, in batches."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

from queue_core.bulk_options import BulkOptions, FailedFilters, WaitingFilters
from queue_core.engine import QueueEngine
from queue_core.reading.bulk import Bulk, BulkResult
from queue_core.reading.changes import Change
from queue_core.storage.arguments import storable_name
from queue_core.storage.filter import Filter, checked_ids
from sql.tables import CLASS_NAME_LENGTH


class BulkChange:
    """Changes matching entries of one queue (`queue_name`), or of the whole table (None)."""

    def __init__(self, engine: QueueEngine, queue_name: str | None) -> None:
        self._bulk_engine = engine
        self._bulk_queue = queue_name
        self._bulk_label = queue_name or engine.store.config.table

    def _change(
        self,
        change: Change,
        wanted: Filter,
        due: datetime | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkResult:
        """Make one change; the entries that may run because of it are `due` (default: now)."""
        engine = self._bulk_engine
        now = engine.store.now()
        bulk = Bulk(
            change,
            queue_name=self._bulk_queue,
            wanted=wanted,
            wake=lambda: engine.poster.rescheduled(due or now),
            progress=options.get("progress"),
            stop=options.get("stop"),
        )
        return bulk.run(dry_run=options.get("dry_run", False))


def wanted_of(filters: FailedFilters | WaitingFilters) -> Filter:
    """The filter of a call's options. Raises InvalidPostError for a value no entry can have."""
    found: dict[str, Any] = dict(filters)
    event_name, ids = found.pop("event_name", None), found.get("record_ids")
    if event_name is not None:
        found["class_name"] = storable_name(event_name, "event_name", limit=CLASS_NAME_LENGTH)
    if ids is not None:
        found["record_ids"] = checked_ids(ids)
    return Filter(**found)
