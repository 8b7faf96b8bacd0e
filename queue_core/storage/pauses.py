"""The pauses of one main table, as they are stored."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.model.lanes import AFTER_PAUSED, PAUSED, Lane
from queue_core.model.pause import Pause, is_in_force
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store
from sql.families import PAUSES


class StoredPauses:
    """Reads and changes, in the caller's transaction or in one of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.config.table
        pauses = store.database.dialect.statements_for(PAUSES)
        self._pauses = pauses(store.statements.main.schema)

    def put(self, pause: Pause, callers: CallersConnection | None = None) -> None:
        """Add a pause, or replace the one of the same queue, handler and order key.

        In the caller's transaction, an IntegrityError says that another one has paused it
        meanwhile.
        """
        columns = msgspec.structs.asdict(pause)
        del columns["table"]

        def work(connection: Connection) -> None:
            self._pauses.put(connection, self._table, pause.lane, columns)

        self._store.write_raced(callers, pause.queue_name, work)

    def remove(self, queue_name: str, lane: Lane, callers: CallersConnection | None = None) -> bool:
        """Remove a pause; False if there is none, or if it had ended."""
        now = self._store.now(callers)

        def work(connection: Connection) -> bool:
            was_in_force = any(
                pause.lane == lane and is_in_force(pause, now) for pause in self.all(connection)
            )
            return self._pauses.remove(connection, self._table, lane) and was_in_force

        return self._store.write(callers, queue_name, work)

    def all(self, connection: Connection) -> list[Pause]:
        """The pauses of the table, ended ones too, by queue, order key and handler."""
        found = map(_pause, self._pauses.of_table(connection, self._table))
        return sorted(
            found,
            key=lambda pause: (pause.queue_name, pause.order_key or "", pause.handler or ""),
        )

    def in_force(
        self, queue_name: str | None = None, callers: CallersConnection | None = None
    ) -> list[Pause]:
        """The pauses that have not ended, of this queue or of all (None)."""
        now = self._store.now(callers)
        found = self._store.read(callers, queue_name or self._table, self.all)
        return [
            pause
            for pause in found
            if is_in_force(pause, now) and queue_name in {None, pause.queue_name}
        ]

    def all_and_lanes(self, connection: Connection) -> tuple[list[Pause], list[Lane]]:
        """The pauses, and the lanes in which entries wait for the end of one."""
        lanes = self._store.statements.lanes_between(connection, PAUSED, AFTER_PAUSED)
        return self.all(connection), [Lane(lane) for lane in lanes]


def _pause(row: Row[Any]) -> Pause:
    return Pause(
        table=row.table_name,
        queue_name=row.queue_name,
        handler=row.handler,
        order_key=row.order_key,
        paused_by=row.paused_by,
        reason=row.reason,
        since=row.since,
        until=row.until,
    )
