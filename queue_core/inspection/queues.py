"""The queues of an inspected database."""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.inspection.inspected import Inspected
from queue_core.model.limit import Limit
from queue_core.model.pause import Pause
from queue_core.reading.depths import QueueDepth, depths
from queue_core.reading.open_circuits import OpenCircuit, open_circuits
from queue_core.reading.overview import QueueStatus, statuses
from queue_core.reading.schedules import ScheduleStatus
from queue_core.reading.schedules import status as schedule_status
from queue_core.storage.limits import StoredLimits
from queue_core.storage.pauses import StoredPauses
from sql.families import SCHEDULES


class InspectedQueues(Inspected):
    """The waiting entries of each queue, and the obstacles that hold them."""

    def queues(self, *, table: str | None = None) -> list[QueueStatus]:
        """Count the entries of each queue, all of them. `depths` costs less.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The queues that hold an entry, ended one in the last minute, or have a dead letter or a
            held order key; by table and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        return [queue for store in self._tables.stores(table) for queue in statuses(store)]

    def depths(self, *, table: str | None = None) -> list[QueueDepth]:
        """Count waiting entries, up to some 10,000 a table, as each scrape of the metrics does.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The queues for which an entry waits, by table and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        return [depth for store in self._tables.stores(table) for depth in depths(store)]

    def pauses(self, *, table: str | None = None) -> list[Pause]:
        """List the queues and handlers that are paused.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The pauses that have not ended, by table, queue and handler.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        stores = self._tables.stores(table)
        return [pause for store in stores for pause in StoredPauses(store).in_force()]

    def open_circuits(self, *, table: str | None = None) -> list[OpenCircuit]:
        """List the handlers whose failed entries wait for a probe.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The open circuits, by table, queue and handler.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        stores = self._tables.stores(table)
        return [circuit for store in stores for circuit in open_circuits(store, None)]

    def limits(self, *, table: str | None = None) -> list[Limit]:
        """List the queues that are limited.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The limits, by table and queue.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        stores = self._tables.stores(table)
        return [limit for store in stores for limit in StoredLimits(store).in_force()]

    def schedules(self, *, table: str | None = None) -> list[ScheduleStatus]:
        """List the recurring schedules with their next dates.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The schedules, by table, queue and name.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        schedules = self._database.dialect.statements_for(SCHEDULES)()

        def read(connection: Connection) -> list[ScheduleStatus]:
            found = map(schedule_status, schedules.all_schedules(connection))
            return [schedule for schedule in found if schedule.table in known]

        known = self._tables.named(table)
        return self._tables.shared(read)
