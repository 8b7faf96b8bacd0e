"""Order keys whose entries wait because one of them has failed."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.runtime.callers import CallersConnection
from queue_core.storage.store import Store


class HeldKey(msgspec.Struct, frozen=True, kw_only=True):
    """An order key that is held: its entries wait until somebody decides about a failed one.

    Retry that entry, and the others follow it; or discard it, and they go on without it.

    Attributes:
        table: The main table.
        queue_name: The bus, or the queue as `service:queue`.
        order_key: The key.
        record_id: The failed entry, which is in history.
        held_since: The date of its failure: an aware date, in UTC.
        waiting: The number of entries that wait behind it.
    """

    table: str
    queue_name: str
    order_key: str
    record_id: int
    held_since: datetime
    waiting: int


def held_keys(
    store: Store, queue_name: str | None, connection: CallersConnection | None = None
) -> list[HeldKey]:
    """The held keys of a queue (None: of all queues of the table), by queue and key."""
    table = store.config.table

    def read(inner: Connection) -> list[HeldKey]:
        return [
            HeldKey(
                table=table,
                queue_name=row.queue_name,
                order_key=row.order_key,
                record_id=row.record_id,
                held_since=row.held_since,
                waiting=row.waiting,
            )
            for row in store.ordering.statements.held(inner, table)
            if queue_name in {None, row.queue_name}
        ]

    return store.read(connection, queue_name or table, read)
