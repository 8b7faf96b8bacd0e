"""The statements on `queue_archives` and `queue_replays`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from sql.tables import queue_archives as archives
from sql.tables import queue_replays as replays


class Archives:
    """Runs that were archived and deleted, and entries that were posted again."""

    def deleted_runs(self, connection: Connection, table_name: str) -> set[str]:
        """The runs of a table's archive whose rows are deleted."""
        return set(
            connection.execute(
                select(archives.c.run).where(archives.c.table_name == table_name)
            ).scalars()
        )

    def entered(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """All columns of the archived runs of a table whose rows are deleted, in that order."""
        rows = select(archives).where(archives.c.table_name == table_name)
        return list(connection.execute(rows.order_by(archives.c.deleted_date, archives.c.run)))

    def deleted_after(
        self, connection: Connection, table_name: str, finished: datetime
    ) -> Row[Any] | None:
        """The first run that holds rows which ended after a date.

        Where the newest row of a run is not known, the date before which all ended counts.
        """
        newest = func.coalesce(archives.c.newest_date, archives.c.before_date)
        rows = select(archives).where(archives.c.table_name == table_name, newest > finished)
        return connection.execute(
            rows.order_by(archives.c.deleted_date, archives.c.run).limit(1)
        ).first()

    def enter_deleted(
        self,
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
        manifest_number: int,
        manifest_sha256: str,
        newest_date: datetime | None,
    ) -> None:
        """Enter that the rows of a run were deleted in this transaction.

        `entries` is their number. The manifest is the one that names the run.
        """
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
                manifest_number=manifest_number,
                manifest_sha256=manifest_sha256,
                newest_date=newest_date,
            )
        )

    def replayed(
        self, connection: Connection, archive: str, ids: Sequence[int] | None = None
    ) -> set[int]:
        """The entries of an archive that were posted again; of `ids`, if they are given."""
        statement = select(replays.c.record_id).where(replays.c.archive == archive)
        if ids is not None:
            statement = statement.where(replays.c.record_id.in_(sorted(ids)))
        return set(connection.execute(statement).scalars())

    def enter_replayed(
        self, connection: Connection, archive: str, new_ids: Mapping[int, int], *, now: datetime
    ) -> None:
        """Enter that entries of an archive were posted again in this transaction.

        `new_ids` maps old ids to new ones.

        An IntegrityError says that another transaction has posted one of them meanwhile.
        """
        connection.execute(
            insert(replays),
            [
                {"archive": archive, "record_id": old, "replay_id": new, "replayed_date": now}
                for old, new in new_ids.items()
            ],
        )
