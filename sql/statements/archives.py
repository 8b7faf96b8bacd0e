"""The statements on `queue_archives` and `queue_replays`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, update

from sql.tables import queue_archives as archives
from sql.tables import queue_replays as replays

PUBLISHED, DELETED = "published", "deleted"
"""States of a run: its manifest is in the log; its rows of history are deleted, too."""


_IS_DELETED = or_(archives.c.state.is_(None), archives.c.state == DELETED)


class Logged(NamedTuple):
    """A run as the log enters it: the columns of `queue_archives`, by their names."""

    run: str
    table_name: str
    target: str
    first_id: int
    last_id: int
    before_date: datetime
    entries: int
    deleted_date: datetime
    manifest_number: int
    manifest_sha256: str
    archive: str
    kind: str
    manifest: bytes


class Archives:
    """The log of archives, and entries that were posted again."""

    def entered(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """The log of a table's archives, in the order of entry, without the manifests' bytes."""
        columns = [column for column in archives.c if column is not archives.c.manifest]
        rows = select(*columns).where(archives.c.table_name == table_name)
        return list(connection.execute(rows.order_by(archives.c.deleted_date, archives.c.run)))

    def manifest(self, connection: Connection, run: str) -> bytes:
        """The bytes of the manifest of a run."""
        found = connection.execute(select(archives.c.manifest).where(archives.c.run == run))
        return bytes(found.scalar_one())

    def at(
        self, connection: Connection, table_name: str, archive: str, number: int
    ) -> tuple[str, bytes] | None:
        """`kind` and `manifest` of the run that has a number; None if none has."""
        found = connection.execute(
            select(archives.c.kind, archives.c.manifest).where(
                archives.c.table_name == table_name,
                archives.c.archive == archive,
                archives.c.manifest_number == number,
            )
        ).first()
        return found and (found.kind, bytes(found.manifest))

    def deleted_runs(self, connection: Connection, table_name: str) -> set[str]:
        """The runs of a table's archives whose rows are deleted."""
        runs = select(archives.c.run).where(archives.c.table_name == table_name, _IS_DELETED)
        return set(connection.execute(runs).scalars())

    def deleted_after(
        self, connection: Connection, table_name: str, finished: datetime
    ) -> Row[Any] | None:
        """The first deleted run that held rows which ended after a date.

        If the newest row of a run is not known, the date counts before which all had ended.
        """
        newest = func.coalesce(archives.c.newest_date, archives.c.before_date)
        rows: Select[Any] = select(archives.c.run, archives.c.target).where(
            archives.c.table_name == table_name, _IS_DELETED, newest > finished
        )
        return connection.execute(
            rows.order_by(archives.c.deleted_date, archives.c.run).limit(1)
        ).first()

    def enter_published(self, connection: Connection, logged: Logged) -> None:
        """Enter a run in the log.

        An IntegrityError says that its number is taken, or that it has been entered before.
        """
        connection.execute(insert(archives).values(**logged._asdict(), state=PUBLISHED))

    def adopt(self, connection: Connection, logged: Logged) -> None:
        """Enter a run that an earlier version has published, or complete the row that it has."""
        given = ("archive", "kind", "manifest_number", "manifest_sha256", "manifest")
        row = update(archives).where(archives.c.run == logged.run)
        completed = row.values({name: getattr(logged, name) for name in given} | {"state": DELETED})
        if not connection.execute(completed).rowcount:
            self.enter_published(connection, logged)

    def enter_deleted(
        self,
        connection: Connection,
        run: str,
        *,
        entries: int,
        newest_date: datetime | None,
        now: datetime,
    ) -> None:
        """Enter that the rows of a run were deleted in this transaction; `entries`: how many."""
        values = {"entries": entries, "newest_date": newest_date, "deleted_date": now}
        connection.execute(
            update(archives).where(archives.c.run == run).values(**values, state=DELETED)
        )

    def withdraw(self, connection: Connection, run: str) -> None:
        """Remove a run from the log, unless its rows are deleted."""
        connection.execute(
            delete(archives).where(archives.c.run == run, archives.c.state == PUBLISHED)
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
