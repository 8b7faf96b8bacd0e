"""Entries that wait for too long or ended FAILED, and history that nobody truncates."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, literal, select

from queue_core.links.hold import LIVING, WAITING
from queue_core.model.lanes import AFTER_KEYED, KEYED, PARKED, is_limited, is_paused
from queue_core.model.states import State
from sql.doctor.base import Check, Scope
from sql.doctor.finding import Finding, Severity, counted, lasting
from sql.families import KEYS
from sql.statements.base import due_since, full_name
from sql.statements.entries import Statements

WAITING_SECONDS = 600.0
"""The time for which a due entry may wait for a claim."""
PARKED_SECONDS = 900.0
"""A deployment that knows a new type step by step is done by then."""
LOOKED_AT = 1_000
"""Rows that are read at most: entries of a lane, keys of a table."""
LETTERS_LOOKED_AT = 100_000
"""Dead letters are counted among this many newest entries of history: no index knows them."""
NEWS_SECONDS = 86_400.0
"""Dead letters that are older have been told of by then."""
OLD_HISTORY_DAYS = 90
MUCH_HISTORY_ROWS = 100_000
"""History of this age with this number of rows is one that nobody truncates."""


def waiting_entries(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that have been due for long, and nobody runs them."""
    for statements in scope.statements():
        found = dict[str, tuple[int, datetime]]()
        for lane in statements.lanes(connection, besides=(KEYED, AFTER_KEYED)):
            if lane != PARKED and not is_paused(lane) and not is_limited(lane):
                for row in _waiting(connection, statements, lane, scope.now, WAITING_SECONDS):
                    entries, oldest = found.get(row.queue_name, (0, row.oldest))
                    found[row.queue_name] = (entries + row.entries, min(oldest, row.oldest))
        for queue_name, (entries, oldest) in sorted(found.items()):
            yield Finding(
                "waiting-entries",
                Severity.DANGER,
                queue_name,
                f"at least {entries:,} entries of {queue_name!r} in {statements.main.name} are due "
                f"and wait, the oldest for {lasting((scope.now - oldest).total_seconds())}: no "
                "node serves them, or the nodes are too slow.",
                "stickybus worker MODULE:OBJECT # another node, or more handler_threads; the "
                "nodes and their queues: stickybus nodes",
            )


def parked_entries(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that no node has known for long: after `unknown_retention_days` they end FAILED."""
    for statements in scope.statements():
        for row in _waiting(connection, statements, PARKED, scope.now, PARKED_SECONDS):
            yield Finding(
                "parked-entries",
                Severity.DANGER,
                row.queue_name,
                f"at least {row.entries:,} entries of {row.queue_name!r} in {statements.main.name} "
                f"are parked, the oldest for {lasting((scope.now - row.oldest).total_seconds())}: "
                "no node knows their type or queue. They end FAILED after unknown_retention_days "
                "(14).",
                "Deploy a node that handles them; which types: stickybus entries list --table "
                f"{statements.main.name} --queue {shlex.quote(row.queue_name)}",
            )


def lost_keys(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Keys that are kept for an entry that is nowhere, and whose end nobody has noted."""
    for statements in scope.statements():
        main = statements.main
        keys = scope.dialect.statements_for(KEYS)(main.schema)
        rows = [
            row
            for row in keys.page(
                connection, main.name, queue_name=None, after=None, limit=LOOKED_AT
            )
            if row.record_id and row.ended_state is None and row.keep not in {WAITING, LIVING}
        ]
        ids = [row.record_id for row in rows]
        # In this order: an entry that ends in between is in history by then.
        there = statements.live_ids(connection, ids=ids) | statements.ended_ids(connection, ids=ids)
        lost = [row for row in rows if row.record_id not in there]
        if lost:
            named = ", ".join(f"{row.entry_key!r} of {row.queue_name!r}" for row in lost[:10])
            yield Finding(
                "lost-keys",
                Severity.DANGER,
                main.name,
                f"{len(lost):,} keys of {main.name} belong to entries that are neither live nor in "
                f"history: {named}. Somebody has deleted the entries by hand, and posts with these "
                "keys write nothing.",
                f"stickybus keys release {shlex.quote(lost[0].entry_key)} --queue "
                f"{shlex.quote(lost[0].queue_name)} --table {main.name}",
            )


def _waiting(
    connection: Connection, statements: Statements, lane: str, now: datetime, seconds: float
) -> list[Row[Any]]:
    """(queue_name, entries, oldest) of a lane's first entries that wait for `seconds` or longer.

    They were both posted and due that long ago.
    """
    main, since = statements.main, now - timedelta(seconds=seconds)
    first = (
        select(
            main.c.queue_name, main.c.processing_state, main.c.effective_date, main.c.created_date
        )
        .where(main.c.lane == lane, main.c.effective_date <= since)
        .order_by(main.c.effective_date, main.c.record_id)
        .limit(LOOKED_AT)
        .subquery()
    )
    statement = (
        select(
            first.c.queue_name,
            func.count().label("entries"),
            func.min(due_since(first)).label("oldest"),
        )
        .where(first.c.processing_state == State.AVAILABLE.value, first.c.created_date <= since)
        .group_by(first.c.queue_name)
    )
    return list(connection.execute(statement))


def dead_letters(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries that ended FAILED, and that nobody has tried again."""
    for statements in scope.statements():
        for row in statements.dead_letters(connection, limit=LETTERS_LOOKED_AT):
            age = (scope.now - row.newest).total_seconds()
            yield Finding(
                "dead-letters",
                Severity.DANGER if age < NEWS_SECONDS else Severity.NOTE,
                row.queue_name,
                f"{counted(row.entries)} of {row.queue_name!r} in {statements.main.name} ended "
                f"FAILED, the newest {lasting(age)} ago ({row.newest:%Y-%m-%d %H:%M} UTC), and "
                "nobody has retried them.",
                f"stickybus failed list --table {statements.main.name} --queue "
                f"{shlex.quote(row.queue_name)} # then stickybus failed retry, or failed discard",
            )


def retention(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """History that is both old and long."""
    for statements in scope.statements():
        past = statements.past
        by_id = select(past.c.finished_date).order_by(past.c.record_id).limit(1)
        oldest = connection.execute(by_id).scalar()
        if oldest is None or (scope.now - oldest).days < OLD_HISTORY_DAYS:
            continue
        many = select(literal(1)).select_from(past).order_by(past.c.record_id)
        if connection.execute(many.offset(MUCH_HISTORY_ROWS).limit(1)).scalar() is not None:
            yield Finding(
                "retention",
                Severity.NOTE,
                past.name,
                f"{past.name} has more than {MUCH_HISTORY_ROWS:,} rows, the oldest from "
                f"{oldest:%Y-%m-%d}. The queue never reads them; they cost disk space, and time "
                "for backups and searches.",
                f"stickybus history truncate --table {statements.main.name} --before 90d",
            )


def missing_partitions(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """A divided history for which nobody has made the partition of now."""
    for statements in scope.statements():
        past = statements.past
        found = scope.dialect.partitions.found(connection, past)
        ended = [(one, one.until) for one in found if one.until is not None]
        if ended and ended[-1][1] <= scope.now:
            newest, until = ended[-1]
            yield Finding(
                "missing-partitions",
                Severity.SLOW,
                past.name,
                f"the newest partition of {past.name} ended on {until:%Y-%m-%d}. Entries that end "
                "now go into the last one, which is never dropped. Either no node runs, or none "
                "may change tables.",
                f"stickybus history partition --table {statements.main.name} --by "
                f"{newest.period or 'month'}",
            )


def cut_off_division(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """What a division of history into partitions has left that was cut off."""
    ways = scope.dialect
    for statements in scope.statements():
        past = statements.past
        left = ways.partitions.leftover(connection, past)
        if left is not None and ways.lock_holder(connection, past.name) is None:
            yield Finding(
                "cut-off-division",
                Severity.DANGER,
                past.name,
                f"a division of {past.name} into partitions was cut off, and has left the "
                f"constraint {left}. A day or more after the division no outcome can be written, "
                "and handlers run again. Either no node runs, or none may change tables.",
                f"ALTER TABLE {full_name(connection, past)} DROP CONSTRAINT {left}",
            )


ENTRY_CHECKS: tuple[Check, ...] = (
    waiting_entries,
    parked_entries,
    lost_keys,
    dead_letters,
    retention,
    missing_partitions,
    cut_off_division,
)
