"""The statistics of an inspected database."""

from __future__ import annotations

from datetime import datetime, timedelta

from queue_core.inspection.inspected import Inspected
from queue_core.reading.statistics import (
    DEFAULT_AGE,
    SECOND,
    ProcessingTimeStats,
    QueueStats,
    RetryStats,
    StatsFilter,
    processing_time_stats,
    queue_stats,
    retry_stats,
)


class InspectedStatistics(Inspected):
    """Figures of each queue over a time."""

    def queue_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
    ) -> list[QueueStats]:
        """Count the entries of each queue by state, live ones and ended ones.

        Live entries count if they were posted within the age.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; later ends do not count. Default: the
                database's time.

        Returns:
            The queues that have such an entry, by table and name.

        Raises:
            ConfigurationError: The age is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.queue_stats(age=timedelta(days=1)):
                print(queue.queue_name, queue.processed, queue.failed)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [one for store in self._tables.stores(table) for one in queue_stats(store, wanted)]

    def retry_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
    ) -> list[RetryStats]:
        """Count how often each queue ran entries again.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; later ends do not count. Default: the
                database's time.

        Returns:
            The queues that ended an entry within the age, by table and name.

        Raises:
            ConfigurationError: The age is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.retry_stats():
                print(queue.queue_name, queue.retries, queue.percentage)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [one for store in self._tables.stores(table) for one in retry_stats(store, wanted)]

    def processing_time_stats(
        self,
        *,
        table: str | None = None,
        queue_name: str | None = None,
        age: timedelta | None = DEFAULT_AGE,
        now: datetime | None = None,
        unit: timedelta = SECOND,
    ) -> list[ProcessingTimeStats]:
        """Compute how long the last runs of each queue's entries took.

        The figures are exact, and those that `stickybus report` finds on the same rows. All history
        of the age is read.

        Args:
            table: Only of this main table. Default: of all.
            queue_name: Only of this bus, or `service:queue`. Default: of all.
            age: Only entries that ended within this time before `now`. None: no limit. Default: 30
                days.
            now: The end of the age, an aware date; later ends do not count. Default: the
                database's time.
            unit: The unit of the times, a positive timedelta. Default: a second.

        Returns:
            The queues that have a timed row of history, by table and name.

        Raises:
            ConfigurationError: The age or unit is not allowed.
            InvalidPostError: A queue's name can't be one; NaiveDateTimeError for a date without a
                time zone.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for queue in inspector.processing_time_stats(unit=timedelta(milliseconds=1)):
                print(queue.queue_name, queue.p50, queue.p99)
            ```
        """
        wanted = StatsFilter(age=age, queue_name=queue_name, now=now)
        return [
            one
            for store in self._tables.stores(table)
            for one in processing_time_stats(store, wanted, unit)
        ]
