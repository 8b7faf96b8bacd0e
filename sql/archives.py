"""The statements on `queue_archives` and `queue_replays`: what was archived and deleted, and what was posted again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, insert, select

from sql.tables import queue_archives as archives
from sql.tables import queue_replays as replays


def deleted_runs(connection: Connection, table_name: str) -> set[str]:
    """The runs of a table's archive whose rows are deleted."""
    return set(
        connection.execute(select(archives.c.run).where(archives.c.table_name == table_name)).scalars()
    )


def enter_deleted(
    connection: Connection,
    *,
    run: str,
    table_name: str,
    target: str,
    first_id: int,
    last_id: int,
    before: datetime,
    entries: int,
    now: datetime,
) -> None:
    """Enter that the rows of a run, `entries` of them, were deleted in this transaction."""
    connection.execute(
        insert(archives).values(
            run=run,
            table_name=table_name,
            target=target,
            first_id=first_id,
            last_id=last_id,
            before_date=before,
            entries=entries,
            deleted_date=now,
        )
    )


def replayed(connection: Connection, archive: str, ids: Sequence[int] | None = None) -> set[int]:
    """The entries of an archive that were posted again; of `ids`, if they are given."""
    statement = select(replays.c.record_id).where(replays.c.archive == archive)
    if ids is not None:
        statement = statement.where(replays.c.record_id.in_(sorted(ids)))
    return set(connection.execute(statement).scalars())


def enter_replayed(
    connection: Connection, archive: str, new_ids: Mapping[int, int], *, now: datetime
) -> None:
    """Enter that entries of an archive were posted again in this transaction; `new_ids` maps old ids to new ones.

    An IntegrityError says that another transaction has posted one of them meanwhile.
    """
    connection.execute(
        insert(replays),
        [
            {"archive": archive, "record_id": old, "replay_id": new, "replayed_date": now}
            for old, new in new_ids.items()
        ],
    )
