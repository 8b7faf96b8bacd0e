"""Changes of all entries that match, for a bus, a service or one queue."""

from queue_core.bulk_changes.failed import FailedEntries
from queue_core.bulk_changes.waiting import WaitingEntries


class BulkChanges(FailedEntries, WaitingEntries):
    """Changes what matches in one queue (`queue_name`), or in all queues of the table (None)."""
