"""The statements on `queue_circuits`, which has a row for each open circuit: few, or none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from sql.statements.insert_new import inserted
from sql.tables import in_schema, queue_circuits


class Circuits:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self._table = in_schema(queue_circuits, schema)

    def of_table(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """The open circuits of one main table, by queue and handler."""
        table = self._table
        found = connection.execute(select(table).where(table.c.table_name == table_name))
        return sorted(found, key=lambda row: (row.queue_name, row.handler))

    def of_probes(
        self, connection: Connection, table_name: str, ids: Sequence[int]
    ) -> list[Row[Any]]:
        """The open circuits whose probes have these ids, by lane. It locks nothing."""
        table = self._table
        mine = table.c.table_name == table_name, table.c.probe_id.in_(ids)
        return list(connection.execute(select(table).where(*mine).order_by(table.c.lane)))

    def find(self, connection: Connection, table_name: str, lane: str) -> Row[Any] | None:
        """The circuit of a lane, if it is open. It locks nothing."""
        return connection.execute(select(self._table).where(*self._is(table_name, lane))).first()

    def open(
        self,
        connection: Connection,
        table_name: str,
        lane: str,
        *,
        queue_name: str,
        handler: str,
        since: datetime,
        probe_id: int,
    ) -> bool:
        """Open a circuit; False if it is open.

        Waits for a transaction that opens or closes it.
        """
        row = {
            "table_name": table_name,
            "lane": lane,
            "queue_name": queue_name,
            "handler": handler,
            "since": since,
            "probe_id": probe_id,
            "failures": 1,
        }
        return inserted(connection, self._table, row)

    def change_probe(
        self,
        connection: Connection,
        table_name: str,
        lane: str,
        *,
        old_id: int,
        new_id: int,
        failures: int,
    ) -> bool:
        """Give a circuit its next probe; False if it has another one, or is closed."""
        mine = (*self._is(table_name, lane), self._table.c.probe_id == old_id)
        changed = update(self._table).where(*mine).values(probe_id=new_id, failures=failures)
        return connection.execute(changed).rowcount == 1

    def close(self, connection: Connection, table_name: str, lane: str, *, probe_id: int) -> bool:
        """Close a circuit; False if it has another probe, or is closed."""
        mine = (*self._is(table_name, lane), self._table.c.probe_id == probe_id)
        return connection.execute(delete(self._table).where(*mine)).rowcount == 1

    def _is(self, table_name: str, lane: str) -> tuple[ColumnElement[bool], ...]:
        return self._table.c.table_name == table_name, self._table.c.lane == lane
