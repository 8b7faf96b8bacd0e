"""Circuits that are open: handlers whose failed entries wait for a probe."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.model.states import State
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store


class OpenCircuit(msgspec.Struct, frozen=True, kw_only=True):
    """An open circuit. Dates are aware, in UTC.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        handler: The name of the subscriber whose failed entries wait.
        since: The date on which it was opened.
        failures: The run that opened it, and the probes that have failed since.
        probe_id: The entry that probes.
        probe_date: From when it may run; None if it runs now.
    """

    table: str
    queue_name: str
    handler: str
    since: datetime
    failures: int
    probe_id: int
    probe_date: datetime | None


def open_circuits(
    store: Store, queue_name: str | None, connection: CallersConnection | None = None
) -> list[OpenCircuit]:
    """The open circuits of a queue (None: of all queues of the table), by queue and handler."""
    table = store.config.table
    return store.read(
        connection, queue_name or table, lambda inner: read_circuits(store, queue_name, inner)
    )


def read_circuits(
    store: Store, queue_name: str | None, connection: Connection
) -> list[OpenCircuit]:
    """As `open_circuits`, on a connection of the store."""
    rows = [row for row in store.circuits.all(connection) if queue_name in {None, row.queue_name}]
    ids = [row.probe_id for row in rows]
    probes = store.search(connection, where=lambda main: [main.c.record_id.in_(ids)]) if ids else []
    dates = {
        probe.record_id: probe.effective_date
        for probe in probes
        if probe.processing_state is not State.IN_PROCESSING
    }
    return [
        OpenCircuit(
            table=store.config.table,
            queue_name=row.queue_name,
            handler=row.handler,
            since=row.since,
            failures=row.failures,
            probe_id=row.probe_id,
            probe_date=dates.get(row.probe_id),
        )
        for row in rows
    ]
