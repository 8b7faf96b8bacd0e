"""The nodes of an inspected database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from queue_core.cluster.subscriber_sets import Difference, differences
from queue_core.inspection.inspected import Inspected
from queue_core.reading.nodes import NodeStatus
from queue_core.reading.nodes import status as node_status
from queue_core.reading.statistics import StatsFilter
from queue_core.reading.workers import WorkerStats, workers
from sql.families import NODES


class InspectedNodes(Inspected):
    """The nodes that serve the queues."""

    def nodes(self) -> list[NodeStatus]:
        """List the nodes, stopped and dead ones too.

        Returns:
            The nodes that have a row, by name.

        Raises:
            SchemaMissingError: There is no table of nodes.
            DatabaseUnreachableError: The database does not answer.
        """
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[NodeStatus]:
            now = self._database.dialect.database_now(connection)
            return [node_status(row, now) for row in nodes.all_nodes(connection)]

        return self._tables.shared(read)

    def workers(
        self, *, table: str | None = None, age: timedelta | None = timedelta(days=1)
    ) -> list[WorkerStats]:
        """Count the work of each live node. It reads history as far back as `age`.

        Args:
            table: Only on this main table. Default: on all.
            age: The time within which a node's ends count; None: since it registered. Default: a
                day.

        Returns:
            The live nodes by table and name, each with each table that it serves.

        Raises:
            ConfigurationError: The age is not allowed.
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for worker in inspector.workers():
                print(worker.node, worker.running, worker.processed, worker.failed)
            ```
        """
        wanted = StatsFilter(age=age)
        return [
            one
            for store in self._tables.stores(table)
            for one in workers(store, wanted.span(store).since)
        ]

    def differing_subscribers(self, *, table: str | None = None) -> list[Difference]:
        """Find event types of which live nodes have different subscribers.

        Args:
            table: Only of this main table. Default: of all.

        Returns:
            The differences, by table, queue and type.

        Raises:
            SchemaMissingError: There is no such table, or none at all.
            DatabaseUnreachableError: The database does not answer.
        """
        nodes = self._database.dialect.statements_for(NODES)()

        def read(connection: Connection) -> list[Difference]:
            now = self._database.dialect.database_now(connection)
            found = differences(nodes.all_nodes(connection), now)
            return [difference for difference in found if difference.table in known]

        known = self._tables.named(table)
        return self._tables.shared(read)
