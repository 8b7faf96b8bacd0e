"""The work of each node: its queues, its running entries and its ended ones."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.reading.nodes import NodeStatus, served_by, status
from queue_core.storage.store import Store
from sql.families import NODES
from sql.statements.nodes import LIVE


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one live node on one main table.

    Attributes:
        node: The name of the node.
        table: The main table.
        queues: The buses and queues (`service:queue`) that it serves there.
        running: Entries that it runs, or is about to start.
        processed: Entries that it has ended PROCESSED since `since`.
        failed: Entries that it has ended FAILED since then.
        since: When the node registered, or the beginning of the age if that is later (UTC).
    """

    node: str
    table: str
    queues: tuple[str, ...]
    running: int
    processed: int
    failed: int
    since: datetime


def workers(store: Store, cutoff: datetime | None) -> list[WorkerStats]:
    """The live nodes that serve a table, by name. Reads live entries, and history since a date."""
    table, statements = store.config.table, store.statements
    nodes = store.database.dialect.statements_for(NODES)()

    def read(connection: Connection) -> list[WorkerStats]:
        now = store.database.dialect.database_now(connection)
        live = [status(row, now) for row in nodes.all_nodes(connection) if row.state == LIVE]
        serving = {node.name: (node, _queues(node, table)) for node in live}
        serving = {name: found for name, found in serving.items() if found[1]}
        if not serving:
            return []
        since = {
            name: max(node.started_date, cutoff or node.started_date)
            for name, (node, _) in serving.items()
        }
        running = {
            row.processing_owner: row.entries for row in statements.running_by_node(connection)
        }
        ended = {
            row.processing_owner: (int(row.processed), int(row.failed))
            for row in statements.ended_by_node(connection, since)
        }
        return [
            WorkerStats(
                node=name,
                table=table,
                queues=queues,
                running=running.get(name, 0),
                processed=ended.get(name, (0, 0))[0],
                failed=ended.get(name, (0, 0))[1],
                since=since[name],
            )
            for name, (_, queues) in sorted(serving.items())
        ]

    return store.read(None, table, read)


def _queues(node: NodeStatus, table: str) -> tuple[str, ...]:
    return tuple(sorted({name for served in served_by(node, table) for name in served["queues"]}))
