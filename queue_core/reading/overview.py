"""How a table's queues stand, for people who look: every live entry counted, and what ended within a minute.

One pass over the main table and one over the newest history, in a transaction that locks nothing. What a scrape of
the metrics needs every few seconds is bounded instead, see `Store.depths`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from queue_core.model.entry import PARKED, SUSPECT, State
from queue_core.storage.store import Store

RATE_SECONDS = 60


class QueueStanding(msgspec.Struct, kw_only=True):
    """One queue. Entries by where they stand, and per second over the last `RATE_SECONDS`.

    `suspect` and `parked` entries are counted there only; `oldest_ready_seconds` is None if none is ready.
    """

    table: str
    queue_name: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    parked: int = 0
    suspect: int = 0
    oldest_ready_seconds: float | None = None
    posted_per_second: float = 0.0
    processed_per_second: float = 0.0
    failed_per_second: float = 0.0


def standings(store: Store) -> list[QueueStanding]:
    """All queues of the table that hold an entry or ended one lately, by name."""
    return store.read(None, store.config.table, lambda connection: _standings(connection, store))


def _standings(connection: Connection, store: Store) -> list[QueueStanding]:
    found: dict[str, QueueStanding] = {}

    def standing(queue_name: str) -> QueueStanding:
        return found.setdefault(queue_name, QueueStanding(table=store.config.table, queue_name=queue_name))

    now = store.clock.now()
    since = now - timedelta(seconds=RATE_SECONDS)
    for row in connection.execute(_live(store, now, since)):
        live = standing(row.queue_name)
        for name in ("ready", "scheduled", "running", "parked", "suspect"):
            setattr(live, name, int(getattr(row, name)))
        if row.oldest is not None:
            live.oldest_ready_seconds = (now - row.oldest).total_seconds()
        live.posted_per_second = int(row.posted) / RATE_SECONDS
    for row in connection.execute(_ended(store, since)):
        ended = standing(row.queue_name)
        ended.posted_per_second += int(row.posted) / RATE_SECONDS
        ended.processed_per_second = int(row.processed) / RATE_SECONDS
        ended.failed_per_second = int(row.failed) / RATE_SECONDS
    return [found[name] for name in sorted(found)]


def _live(store: Store, now: datetime, since: datetime) -> Any:
    main = store.statements.main
    running = main.c.processing_state == State.IN_PROCESSING.value
    waiting = and_(main.c.processing_state == State.AVAILABLE.value, main.c.lane.not_in([PARKED, SUSPECT]))
    ready = and_(waiting, main.c.effective_date <= now)
    return select(
        main.c.queue_name,
        _count(ready, "ready"),
        _count(and_(waiting, main.c.effective_date > now), "scheduled"),
        _count(running, "running"),
        _count(main.c.lane == PARKED, "parked"),
        _count(main.c.lane == SUSPECT, "suspect"),
        # A copy made by the reaper has the date of the entry that was posted.
        _count(and_(main.c.created_date >= since, main.c.redispatch_count == 0), "posted"),
        func.min(case((ready, main.c.effective_date))).label("oldest"),
    ).group_by(main.c.queue_name)


def _ended(store: Store, since: datetime) -> Any:
    past = store.statements.past
    return (
        select(
            past.c.queue_name,
            _count(past.c.processing_state == State.PROCESSED.value, "processed"),
            _count(past.c.processing_state == State.FAILED.value, "failed"),
            _count(and_(past.c.created_date >= since, past.c.redispatch_count == 0), "posted"),
        )
        .where(past.c.finished_date >= since)
        .group_by(past.c.queue_name)
    )


def _count(condition: ColumnElement[bool], name: str) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0)).label(name)
