"""The status of a table's queues: every live entry counted, and the ends of the last minute.

One pass over the main table, one over the newest history, one over as many rows of it as
`LOOKED_AT` says, and one over as many order keys, in a transaction that locks nothing. The counts
that a scrape of the metrics needs every few seconds are bounded: `reading.depths` and
`reading.obstacles`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from queue_core.model.lanes import (
    AFTER_KEYED,
    AFTER_LIMITED,
    AFTER_PAUSED,
    KEYED,
    LIMITED,
    PARKED,
    PAUSED,
    SUSPECT,
)
from queue_core.storage.store import Store

RATE_SECONDS = 60
"""The time before now whose ends make the rates."""
LOOKED_AT = 100_000
"""Dead letters are counted among this many newest entries of history, and held order keys among
this many first ones of a table: no index knows either.
"""
_COUNTED = ("ready", "limited", "scheduled", "running", "parked", "suspect", "paused", "waiting")


class QueueStatus(msgspec.Struct, kw_only=True):
    """One queue of one table, at the moment of the read.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        ready: Live entries that are due and wait for a node.
        limited: Live entries that are due and wait for a place of a limit, of their queue or their
            limit key; not counted as `ready`.
        scheduled: Live entries of a later date.
        running: Live entries that a node runs.
        parked: Live entries whose type or queue no node has known; not counted as `ready`.
        suspect: Live entries that were running when their process died; not counted as `ready`.
        paused: Live entries that wait for the end of a pause, or for a circuit to be closed; not
            counted as `ready`.
        waiting: Live entries that wait for others, such as those of their order key; not counted as
            `ready`.
        held_keys: Order keys that a failed entry holds, among the table's first 100,000 keys.
        oldest_ready_seconds: The time since the oldest ready entry was due; None if there is none.
        posted_per_second: Entries posted in the last minute, a second.
        processed_per_second: Entries that ended PROCESSED in the last minute, a second.
        failed_per_second: Entries that ended FAILED in the last minute, a second.
        dead_letters: Entries that ended FAILED, and that nobody tried again or discarded, among the
            100,000 newest of the table's history.
        newest_dead_letter: When the newest of these ended (UTC); None if there is none.
    """

    table: str
    queue_name: str
    ready: int = 0
    limited: int = 0
    scheduled: int = 0
    running: int = 0
    parked: int = 0
    suspect: int = 0
    paused: int = 0
    waiting: int = 0
    held_keys: int = 0
    oldest_ready_seconds: float | None = None
    posted_per_second: float = 0.0
    processed_per_second: float = 0.0
    failed_per_second: float = 0.0
    dead_letters: int = 0
    newest_dead_letter: datetime | None = None


def statuses(store: Store) -> list[QueueStatus]:
    """The queues that hold an entry, ended one lately, or have a dead letter or a held key."""
    now = store.now()
    return store.read(
        None, store.config.table, lambda connection: _statuses(connection, store, now)
    )


def _statuses(connection: Connection, store: Store, now: datetime) -> list[QueueStatus]:
    found: dict[str, QueueStatus] = {}

    def status(queue_name: str) -> QueueStatus:
        return found.setdefault(
            queue_name, QueueStatus(table=store.config.table, queue_name=queue_name)
        )

    statements, since = store.statements, now - timedelta(seconds=RATE_SECONDS)
    for row in statements.live_counts(
        connection,
        now=now,
        since=since,
        parked=PARKED,
        suspect=SUSPECT,
        paused=(PAUSED, AFTER_PAUSED),
        limited=((LIMITED, AFTER_LIMITED), (KEYED, AFTER_KEYED)),
    ):
        live = status(row.queue_name)
        for name in _COUNTED:
            setattr(live, name, int(getattr(row, name)))
        if row.oldest is not None:
            live.oldest_ready_seconds = (now - row.oldest).total_seconds()
        live.posted_per_second = int(row.posted) / RATE_SECONDS
    held = store.ordering.statements.held_counts(connection, store.config.table, limit=LOOKED_AT)
    for queue_name, keys in held:
        status(queue_name).held_keys = keys
    for row in statements.ended_counts(connection, since=since):
        ended = status(row.queue_name)
        ended.posted_per_second += int(row.posted) / RATE_SECONDS
        ended.processed_per_second = int(row.processed) / RATE_SECONDS
        ended.failed_per_second = int(row.failed) / RATE_SECONDS
    for row in statements.dead_letters(connection, limit=LOOKED_AT):
        failed = status(row.queue_name)
        failed.dead_letters, failed.newest_dead_letter = int(row.entries), row.newest
    return [found[name] for name in sorted(found)]


def dead_letter_ids(store: Store) -> list[int]:
    """The ids of the entries that `QueueStatus.dead_letters` counts, of all queues of the table."""
    return store.read(
        None,
        store.config.table,
        lambda connection: store.statements.dead_letter_ids(connection, limit=LOOKED_AT),
    )
