"""Changes of all entries that match, for a bus, a service or one queue."""

from queue_core.bulk_changes.failed import FailedEntries
from queue_core.bulk_changes.waiting import WaitingEntries


class BulkChanges(FailedEntries, WaitingEntries):
    """Changes matching entries of one queue (`queue_name`), or of the whole table (None)."""
