"""The entries that a dead process leaves: each is innocent, a suspect, or poison (FAILED).

An entry that was claimed, or was due, goes to history as REAPED, and a copy of it with the next
redispatch count is born AVAILABLE for any node; one not yet due only changes its lane. A claimed
entry that a handler thread may have taken is a suspect, since it may have killed the process;
entries that waited behind those are not, the first time. Suspects run one at a time in each bus or
service. A suspect whose process dies more than `max_redispatches` further times ends FAILED. A
process that stopped in order makes no suspect, and counts no crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.links.link import Ending
from queue_core.model.entry import Entry, from_row
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.model.states import State
from queue_core.storage.store import Store
from sql.statements.lanes import copy_of


def redispatch(
    connection: Connection,
    store: Store,
    rows: Sequence[Row[Any]],
    *,
    crashed: bool,
    before: int = 0,
) -> list[Entry]:
    """Move locked entries of a dead process to history as REAPED, and give each a live copy.

    `rows` are in claim order; `before` counts those of the same node that came earlier. If the
    process has `crashed`, entries that may have killed it become suspects, or end FAILED if their
    processes died too often; the latter are returned.
    """
    statements, now, config = store.statements, store.clock.now(), store.config
    held = [row for row in rows if row.processing_state == State.IN_PROCESSING]
    known = [row for row in held if row.crash_count]
    # The first crash makes a suspect; from then on it ran alone among suspects, and its crashes
    # count.
    poison = [row for row in known if crashed and row.crash_count > config.max_redispatches]
    again = [
        row.record_id for row in known if row.crash_count <= config.max_redispatches or not crashed
    ]
    # A pool takes entries in claim order, one a thread. An entry behind them waited, unless those
    # before it had ended unwritten. So it is innocent the first time. The next time it is a suspect
    # wherever it stood. Another node may have had more threads: then it is one the next time.
    suspects = [
        row.record_id
        for rank, row in enumerate(held, before)
        if crashed
        and not row.crash_count
        and (rank < config.handler_threads or row.redispatch_count)
    ]
    accused = {*suspects, *again, *(row.record_id for row in poison)}
    innocent = [row.record_id for row in rows if row.record_id not in accused]
    _copy(connection, store, rows, ids=suspects, lane=SUSPECT, crashes=1)
    # After a crash not at once: nodes that do nothing but die have no time for the innocent.
    later = now + timedelta(seconds=store.config.node.lease_seconds) if crashed else None
    _copy(connection, store, rows, ids=again, lane=SUSPECT, crashes=int(crashed), due=later)
    _copy(connection, store, rows, ids=innocent, lane=ANY_NODE, crashes=0)
    statements.to_history(
        connection,
        ids=suspects + again + innocent,
        values={"processing_state": State.REAPED.value, "finished_date": now},
    )
    reason = (
        f"PoisonEntry: the process that ran this entry died {config.max_redispatches + 1} times, "
        "while it was the only entry under suspicion there. It was not run again; its payload is "
        "kept here."
    )
    ended = {"processing_state": State.FAILED, "finished_date": now, "last_error": reason}
    statements.to_history(connection, ids=[row.record_id for row in poison], values=ended)
    failed = [from_row(row) for row in poison]
    store.links.ended(connection, [Ending(entry, State.FAILED) for entry in failed])
    return [msgspec.structs.replace(entry, **ended) for entry in failed]


def _copy(
    connection: Connection,
    store: Store,
    rows: Sequence[Row[Any]],
    *,
    ids: Sequence[int],
    lane: Lane,
    crashes: int,
    due: datetime | None = None,
) -> None:
    """Give the rows with these ids a copy, and tell the links of the new ids."""
    concern, renewed, chosen = store.links.concern, set[int](), set(ids)
    for row in rows:
        if row.record_id in chosen and concern(row.headers):
            values = copy_of(row._asdict(), lane=lane, crashes=crashes, due=due)
            [new_id] = store.insert(connection, [values])
            store.links.renewed(connection, from_row(row), new_id)
            renewed.add(row.record_id)
    others = [record_id for record_id in ids if record_id not in renewed]
    store.statements.copy_anew(connection, ids=others, lane=lane, crashes=crashes, due=due)


def recover(
    store: Store,
    name: str,
    failed: Callable[[Sequence[Entry]], None],
    *,
    crashed: bool,
    besides: Collection[int] = (),
) -> int:
    """Redispatch entries that a former process of this node's name was running.

    Rows that are still AVAILABLE stay in the lane. `crashed`: it did not stop in order. `besides`:
    ids that this process itself still runs. Returns how many; `failed` is called with those that
    ended FAILED.
    """
    total = 0
    while True:

        def batch(connection: Connection, before: int = total) -> tuple[int, list[Entry]]:
            rows = store.statements.locked_page(
                connection,
                lane=name,
                state=State.IN_PROCESSING,
                limit=store.config.node.reap_batch_size,
                besides=besides,
            )
            ended = (
                redispatch(connection, store, rows, crashed=crashed, before=before) if rows else []
            )
            return len(rows), ended

        moved, ended = store.database.write(batch)
        failed(ended)
        total += moved
        if moved < store.config.node.reap_batch_size:  # another look would read the whole lane
            return total
