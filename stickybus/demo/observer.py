"""The view of the demo's parent: the database, seen from outside.

It posts nothing and runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, func, literal, select

from queue_core.model.entry import Entry
from queue_core.model.states import State
from queue_core.storage.store import Store
from sql.families import NODES
from stickybus.demo import shop


@dataclass(frozen=True)
class NodeView:
    """The state of a node.

    `running`: entries that it holds, including those that wait for one of its threads.
    """

    name: str
    state: str
    posted: int
    running: int
    processed: int
    failed: int
    reaped: int


@dataclass(frozen=True)
class QueueView:
    """The state of a queue. `ready`: entries that are due and held by no node."""

    name: str
    posted: int
    scheduled: int
    ready: int
    running: int
    processed: int
    failed: int

    @property
    def ended(self) -> int:
        """Number of entries that have ended."""
        return self.processed + self.failed


@dataclass(frozen=True)
class View:
    """One look at the database."""

    nodes: Sequence[NodeView]
    queues: Sequence[QueueView]

    def node(self, name: str) -> NodeView:
        """A node by name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def ended(self) -> int:
        """Number of entries of all queues that have ended."""
        return sum(queue.ended for queue in self.queues)


class Observer:
    """A bus and a service that are never started."""

    def __init__(self, folder: Path) -> None:
        self._bus = shop.open_bus(folder)
        self._service, self._reminders = shop.open_reminders(folder, None, lambda _reminder: None)
        self._faces = (self._bus, self._service)

    def close(self) -> None:
        """Close the connections."""
        for face in self._faces:
            face.close()

    def events(self) -> list[Entry]:
        """The bus's history."""
        return self._bus.history()

    def reminders(self) -> list[Entry]:
        """The notification queue's history."""
        return self._reminders.history()

    def truncate(self) -> int:
        """Empty both histories, and return the number of rows."""
        return sum(face.truncate_history() for face in self._faces)

    def states(self) -> dict[str, str]:
        """Each node's state, as the cluster sees it."""
        database = self._bus._engine.database
        nodes = database.dialect.statements_for(NODES)()
        return {row.name: row.state for row in database.fetch(nodes.all_nodes)}

    def look(self) -> View:
        """Return the state of all nodes and queues."""
        states, counts = self.states(), Counter[tuple[str, str]]()
        for face in self._faces:
            for row in face._engine.database.fetch(_groups(face._engine.store)):
                state = State(row.processing_state)
                owner = row.processing_owner if state is State.IN_PROCESSING else row.lane
                what = (
                    state.value
                    if state is not State.AVAILABLE
                    else "ready"
                    if row.due
                    else "scheduled"
                )
                for name in (owner, row.queue_name):
                    counts[name, what] += row.entries
                if row.redispatch_count == 0:  # else a copy that the reaper made
                    for name in (row.creating_owner, row.queue_name):
                        counts[name, "posted"] += row.entries
        return View(
            [
                NodeView(
                    name,
                    states.get(name, ""),
                    counts[name, "posted"],
                    counts[name, State.IN_PROCESSING],
                    counts[name, State.PROCESSED],
                    counts[name, State.FAILED],
                    counts[name, State.REAPED],
                )
                for name in shop.NODES
            ],
            [
                QueueView(
                    name,
                    counts[name, "posted"],
                    counts[name, "scheduled"],
                    counts[name, "ready"],
                    counts[name, State.IN_PROCESSING],
                    counts[name, State.PROCESSED],
                    counts[name, State.FAILED],
                )
                for name in (self._bus.config.name, self._reminders.full_name)
            ],
        )


def _groups(store: Store) -> Callable[[Connection], list[Row[Any]]]:
    main, past, now = store.statements.main, store.statements.past, store.clock.now()

    def read(connection: Connection) -> list[Row[Any]]:
        return [row for table in (main, past) for row in connection.execute(grouped(table))]

    def grouped(table: Table) -> Select[Any]:
        columns = [
            table.c[name]
            for name in (
                "queue_name",
                "creating_owner",
                "processing_owner",
                "lane",
                "processing_state",
                "redispatch_count",
            )
        ]
        due = (table.c.effective_date <= literal(now, table.c.effective_date.type)).label("due")
        return select(*columns, due, func.count().label("entries")).group_by(*columns, due)

    return read
